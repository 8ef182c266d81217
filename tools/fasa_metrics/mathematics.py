"""Answers of mathematical problems: boxed, and compared as mathematics by math-verify."""
import math


def is_right(prediction, answer):
    """Whether the prediction's last boxed expression equals the answer. A prediction without one
    is wrong: a number somewhere on the way is no answer."""
    import math_verify
    last = prediction.rfind("\\boxed")
    if last < 0:
        return False
    # Both stop after five seconds.
    wanted = math_verify.parse(f"${answer}$")
    given = math_verify.parse(prediction[last:],
                              extraction_config=[math_verify.LatexExtractionConfig()])
    return bool(wanted) and bool(given) and bool(math_verify.verify(wanted, given))


def pass_at(k, samples, right):
    """The probability that at least one of k samples, drawn without replacement, is right (arXiv
    2107.03374, section 2.1)."""
    if samples - right < k:
        return 1.0
    return 1.0 - math.comb(samples - right, k) / math.comb(samples, k)
