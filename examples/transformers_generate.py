"""A Hugging Face model that generates on fasa: transformers_generate.py [MODEL_DIR [TEXT_FILE]]."""
import pathlib
import sys

import fasa.transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

ROOT = pathlib.Path(__file__).resolve().parents[1]
path = sys.argv[1] if len(sys.argv) > 1 else ROOT / "models/needle-3m"
text_file = sys.argv[2] if len(sys.argv) > 2 else ROOT / "models/texts/ruth.txt"

tokenizer = AutoTokenizer.from_pretrained(path)
model = AutoModelForCausalLM.from_pretrained(path)
fasa.transformers.enable(model, fac_tokens=128)  # from here on generate() runs on fasa

text = pathlib.Path(text_file).read_text()[:2000]
inputs = tokenizer(text, return_tensors="pt", add_special_tokens=False)
output = model.generate(**inputs, max_new_tokens=32, do_sample=False)
print(tokenizer.decode(output[0, inputs.input_ids.shape[1]:]))
