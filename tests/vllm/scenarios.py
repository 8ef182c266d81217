"""vLLM engines under test. Run by support.run: NAME ARGUMENTS RESULT."""
import json
import os
import pathlib
import random
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = str(ROOT / "models/needle-3m")
WORKER = "fasa.vllm.CpuWorker"
FULL = {"selection": "full"}


def text_ids():
    """The bundled model's tokens for a text: its bytes, except for the first ones of the
    vocabulary."""
    from transformers import AutoTokenizer

    text = (ROOT / "models/texts/ruth.txt").read_text()
    return AutoTokenizer.from_pretrained(MODEL)(text, add_special_tokens=False)["input_ids"]


def engine(fasa, **options):
    from vllm import LLM

    given = {"model": MODEL, "dtype": "float32", "max_model_len": 4096, "enforce_eager": True,
             "max_num_seqs": 4, "max_num_batched_tokens": 128, **options}
    if fasa is not None:
        given |= {"additional_config": {"fasa": fasa}, "worker_cls": WORKER}
    return LLM(**given)


def prompts_of(ids):
    """12 prompts of 1 to 900 tokens; some share prefixes of whole blocks and of partial ones."""
    lengths = [1, 900, 130, 257, 64, 128, 700, 385, 129, 512, 20, 900]
    shared = [0, 0, 0, 0, 3000, 3000, 3000, 6000, 6000, 0, 9000, 12000]
    return [ids[first:first + length] for first, length in zip(shared, lengths)]


def outputs_of(llm, prompts, tokens=64):
    from vllm import SamplingParams

    sampling = SamplingParams(temperature=0, max_tokens=tokens, logprobs=2, ignore_eos=True)
    found = llm.generate([{"prompt_token_ids": ids} for ids in prompts], sampling, use_tqdm=False)
    return [{"cached": one.num_cached_tokens, "steps": [
        {"token": token, "top": {str(key): value.logprob for key, value in top.items()}}
        for token, top in zip(one.outputs[0].token_ids, one.outputs[0].logprobs)]} for one in found]


def scheduler_of(llm):
    return llm.llm_engine.engine_core.engine_core.scheduler


def count_preemptions(llm):
    scheduler, counts = scheduler_of(llm), [0]
    method = scheduler._preempt_request

    def counted(*args, **kwargs):
        counts[0] += 1
        return method(*args, **kwargs)

    scheduler._preempt_request = counted
    return counts


def paged_of(_):
    from fasa.vllm._store import current_store

    return current_store().paged


def greedy(fasa, twice=False, options=None, tokens=64):
    """The outputs for the prompts, for a second run too if requested."""
    llm = engine(fasa, **(options or {}))
    preemptions = (count_preemptions(llm) if os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"
                   else [0])
    prompts = prompts_of(text_ids())
    first = outputs_of(llm, prompts, tokens)
    result = {"first": first, "preemptions": preemptions[0]}
    if twice:
        result["second"] = outputs_of(llm, prompts, tokens)
    if fasa is not None and os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0":
        result["metrics"] = paged_of(llm).metrics()
        result["memory"] = paged_of(llm).memory()
        result["stub"] = stub_bytes(llm)
    return result


def stub_bytes(llm):
    """Bytes of vLLM's own pool, per token and layer."""
    config = scheduler_of(llm).kv_cache_config
    spec = config.kv_cache_groups[0].kv_cache_spec
    return spec.page_size_bytes / spec.block_size


def same_step():
    """Two equal prompts of three blocks and a partial one, submitted together."""
    llm = engine(FULL, max_num_batched_tokens=2048)
    prompt = text_ids()[:3 * 128 + 40]
    both = outputs_of(llm, [prompt, prompt], 16)
    alone = outputs_of(llm, [prompt], 16)
    return {"both": both, "alone": alone}


def freed_blocks(requests=300, blocks=40, drops=True, seed=1):
    """Random requests with aborts. After every step free blocks without a cached prefix are
    dropped, so that a read of one would raise. Blocks in use must hold the scheduler's tokens."""
    from vllm import SamplingParams

    llm = engine(FULL, num_gpu_blocks_override=blocks, max_model_len=2048, max_num_seqs=24,
                 max_num_batched_tokens=256)
    preemptions = count_preemptions(llm)
    ids, aborts = text_ids(), random.Random(seed)
    core, scheduler = llm.llm_engine, scheduler_of(llm)
    paged = paged_of(llm)
    memory = paged.memory()
    asked = 0
    outputs, checked, aborted = {}, 0, 0
    live = set()
    while asked < requests or core.has_unfinished_requests():
        while asked < requests and len(live) < 28:
            # the same requests, independent of the engine's state
            rng = random.Random(1000 * seed + asked)
            first, length = rng.randrange(0, 900,
                                          100), rng.choice([5, 110, 128, 230, 370, 620, 700])
            core.add_request(str(asked), {"prompt_token_ids": ids[first:first + length]},
                             SamplingParams(temperature=0, max_tokens=rng.randint(1, 80),
                                            ignore_eos=True))
            live.add(str(asked))
            asked += 1
        for one in core.step():
            if one.finished:
                outputs[one.request_id] = list(one.outputs[0].token_ids)
                live.discard(one.request_id)
        if aborts.random() < 0.05 and live:
            name = aborts.choice(sorted(live))
            core.abort_request([name])
            live.discard(name)
            aborted += 1
        if drops:
            pool = scheduler.kv_cache_manager.block_pool
            free = [block.block_id for block in pool.blocks
                    if block.ref_cnt == 0 and block.block_hash is None and not block.is_null]
            paged.drop_pages(free)
        for request in scheduler.running:
            table = scheduler.kv_cache_manager.get_block_ids(request.request_id)[0]
            computed = request.num_computed_tokens
            for at, block in enumerate(table[:-(-computed // 128)]):
                expected = min(128, computed - at * 128)
                held = {paged.held(block, layer) for layer in range(paged.geometry.layers)}
                assert held == {expected}, (request.request_id, at, block, held, expected)
                checked += 1
    after = paged.memory()
    rows = ("device_rows", "device_slices", "host_rows")
    assert {key: memory[key] for key in rows} == {key: after[key] for key in rows}
    return {"outputs": outputs, "preemptions": preemptions[0], "checked": checked,
            "aborted": aborted, "asked": asked}


def a_live_page_dropped():
    """The control: it must raise."""
    from vllm import SamplingParams

    llm = engine(FULL)
    core = llm.llm_engine
    core.add_request("0", {"prompt_token_ids": text_ids()[:300]},
                     SamplingParams(temperature=0, max_tokens=40, ignore_eos=True))
    for _ in range(8):
        core.step()
    block = scheduler_of(llm).kv_cache_manager.get_block_ids(
        scheduler_of(llm).running[0].request_id)[0][1]
    paged_of(llm).drop_pages([block])
    try:
        core.step()
    except Exception as error:  # noqa: BLE001
        return {"said": repr(error)}
    return {"said": ""}


def start(fasa, **options):
    """The engine's error, where it must not start."""
    engine(fasa, **options)
    return {}


def refusals(asked):
    """fasa's error for each set of options that a configuration is made from."""
    from fasa import UsageError
    from fasa.vllm._settings import Settings, refuse
    from vllm.engine.arg_utils import EngineArgs

    said = []
    for options in asked:
        patches = options.pop("patch", {})
        config = EngineArgs(**{"model": MODEL, "dtype": "float32", "max_model_len": 4096,
                               "enforce_eager": True, "worker_cls": WORKER,
                               "additional_config": {"fasa": {}}, **options}).create_engine_config()
        for path, value in patches.items():
            target = config
            *parents, name = path.split(".")
            for parent in parents:
                target = getattr(target, parent)
            object.__setattr__(target, name, value)
        try:
            Settings.of(config)
            refuse(config)
            said.append("")
        except UsageError as error:
            said.append(str(error))
    return {"said": said}


def after_shutdown():
    """The engine's memory is freed when the engine is gone."""
    import gc

    import psutil

    def mapped():
        gc.collect()
        return psutil.Process().memory_info().vms

    llm = engine(FULL, kv_cache_memory_bytes=1 << 30)
    outputs_of(llm, [text_ids()[:900]], 4)
    paged = paged_of(llm)
    rows, before = paged.memory()["device_rows"], mapped()
    del paged
    llm.llm_engine.engine_core.shutdown()
    from fasa.vllm import _store

    return {"rows": rows, "closed": _store.current_store() is None, "back": before - mapped()}


if __name__ == "__main__":
    found = globals()[sys.argv[1]](**json.loads(sys.argv[2]))
    pathlib.Path(sys.argv[3]).write_text(json.dumps(found))
