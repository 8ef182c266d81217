"""python -m fasa: calibrate, generate and eval with any model folder of Hugging Face transformers."""
from ._command import main

if __name__ == "__main__":
    main()
