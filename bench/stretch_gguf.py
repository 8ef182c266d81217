#!/usr/bin/env python3
"""Copies a GGUF file and stretches its positions by YaRN: for measurements beyond the length that a
model was trained for. Full attention of the stretched model is then the reference.

    tools/env python && tools/env peers
    PYTHONPATH=build/peers build/venv/bin/python bench/stretch_gguf.py MODEL.gguf 4 STRETCHED.gguf
"""
import argparse

import gguf


def scaling_of(reader, factor):
    """The keys that change: name -> (value, type)."""
    family = reader.get_field("general.architecture").contents()
    trained = reader.get_field(f"{family}.context_length").contents()
    kind = gguf.GGUFValueType
    return {f"{family}.context_length": (round(trained * factor), kind.UINT32),
            f"{family}.rope.scaling.type": ("yarn", kind.STRING),
            f"{family}.rope.scaling.factor": (float(factor), kind.FLOAT32),
            f"{family}.rope.scaling.original_context_length": (trained, kind.UINT32)}, family


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("factor", type=float)
    parser.add_argument("out")
    given = parser.parse_args()
    reader = gguf.GGUFReader(given.model)
    changed, family = scaling_of(reader, given.factor)
    writer = gguf.GGUFWriter(given.out, family)
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture" or name in changed:
            continue
        kind = field.types[0]
        inner = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), kind, sub_type=inner)
    for name, (value, kind) in changed.items():
        writer.add_key_value(name, value, kind)
    for tensor in reader.tensors:
        writer.add_tensor_info(tensor.name, tensor.data.shape, tensor.data.dtype,
                               tensor.data.nbytes, tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for tensor in reader.tensors:
        writer.write_tensor_data(tensor.data)
    writer.close()


if __name__ == "__main__":
    main()
