"""fasa in Hugging Face transformers (5.4 and newer).

Importing it registers the attention implementation "fasa":

    model = AutoModelForCausalLM.from_pretrained(path, attn_implementation="fasa")
    model.generate(ids, past_key_values=fasa.transformers.Cache(model, config="fasa.toml"))

or, in one line for every later `generate`, `fasa.transformers.enable(model, config="fasa.toml")`.
"""
from transformers import AttentionInterface, AttentionMaskInterface

from ._attention import fasa_attention, fasa_mask
from ._cache import Cache
from ._calibrate import calibrate
from ._enable import disable, enable
from ._geometry import fingerprint

NAME = "fasa"

AttentionInterface.register(NAME, fasa_attention)
AttentionMaskInterface.register(NAME, fasa_mask)

__all__ = ["NAME", "Cache", "calibrate", "disable", "enable", "fasa_attention", "fasa_mask",
           "fingerprint"]
