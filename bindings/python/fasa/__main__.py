"""python -m fasa: calibrate and generate with any model folder of Hugging Face transformers."""
from ._command import main

if __name__ == "__main__":
    main()
