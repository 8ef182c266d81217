"""python -m fasa: calibrate, generate and eval with any folder of a Hugging Face model."""
from ._command import main

if __name__ == "__main__":
    main()
