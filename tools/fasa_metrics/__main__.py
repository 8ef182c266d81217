"""python -m fasa_metrics RESULTS.jsonl: scores the predictions that `fasa eval` has kept. Prints
{"scores": {id: per cent}}; --check says whether the packages are there."""
import json
import sys

from fasa_metrics import longbench, mathematics


def check():
    import importlib
    missing = []
    for name in ("jieba", "math_verify", "rapidfuzz", "rouge"):
        try:
            importlib.import_module(name)
        except ImportError:
            missing.append(name)
    if missing:
        print(f"missing: {', '.join(missing)}", file=sys.stderr)
    return 1 if missing else 0


def score_of(record, setup):
    if setup["dataset_kind"] == "math":
        right = sum(mathematics.is_right(one, record["answer"]) for one in record["predictions"])
        return 100 * mathematics.pass_at(setup["pass_k"], len(record["predictions"]), right)
    return longbench.score(setup["dataset"], record["prediction"], record["answers"],
                           record["all_classes"] or [])


def score_file(path):
    with open(path, encoding="utf-8") as file:
        # An incomplete last line, left by an interruption, is ignored.
        lines = [json.loads(line) for line in file if line.endswith("\n")]
    setup = lines[0]["setup"]["task_setup"]
    return {record["id"]: score_of(record, setup) for record in lines[1:]}


def main(arguments):
    if arguments == ["--check"]:
        return check()
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    print(json.dumps({"scores": score_file(arguments[0])}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
