"""The metrics of LongBench v1 (arXiv 2308.14508, its table of tasks and its eval.py): each takes a
prediction, one right answer and the classes of the task, and gives a share of 1."""
import collections
import re
import string

# Punctuation that is ignored in Chinese answers, in addition to ASCII's.
CHINESE_MARKS = ("！？｡。＂＃＄％＆＇（）＊＋，－／：；＜＝＞＠［＼］＾＿｀｛｜｝～｟｠｢｣､、〃》「」『』【】〔〕〖〗〘〙"
                 "〚〛〜〝〞〟〰〾〿–—‘’‛“”„‟…‧﹏.")


def plain_english(text):
    """Lower case, no punctuation, no articles, single blanks."""
    kept = "".join(c for c in text.lower() if c not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", kept).split())


def plain_chinese(text):
    """Lower case, no punctuation of either script, no blanks."""
    marks = set(string.punctuation + CHINESE_MARKS)
    return "".join("".join(c for c in text.lower() if c not in marks).split())


def chinese_words(text):
    import jieba
    jieba.setLogLevel(60)
    return list(jieba.cut(text, cut_all=False))


def overlap_f1(predicted, right):
    """Harmonic mean of precision and recall over two bags of words."""
    common = sum((collections.Counter(predicted) & collections.Counter(right)).values())
    if common == 0:
        return 0.0
    precision, recall = common / len(predicted), common / len(right)
    return 2 * precision * recall / (precision + recall)


def qa_f1_score(prediction, answer, _classes):
    return overlap_f1(plain_english(prediction).split(), plain_english(answer).split())


def qa_f1_zh_score(prediction, answer, _classes):
    words = ([w for w in map(plain_chinese, chinese_words(text)) if w]
             for text in (prediction, answer))
    return overlap_f1(*words)


def rouge_score(prediction, answer, _classes):
    """F of ROUGE-L; 0 where one of the texts is empty."""
    import rouge
    try:
        return rouge.Rouge().get_scores([prediction], [answer], avg=True)["rouge-l"]["f"]
    except (ValueError, RecursionError):
        return 0.0


def rouge_zh_score(prediction, answer, classes):
    return rouge_score(" ".join(chinese_words(prediction)), " ".join(chinese_words(answer)),
                       classes)


def classification_score(prediction, answer, classes):
    """1 / number of classes that the prediction names, if the right one is among them, else 0.
    Class names that are part of the right one's name do not count."""
    named = [name for name in classes if name in prediction]
    named = [name for name in named if name == answer or name not in answer]
    return 1 / len(named) if answer in named else 0.0


def share_of_numbers(prediction, wanted):
    numbers = re.findall(r"\d+", prediction)
    return numbers.count(wanted) / len(numbers) if numbers else 0.0


def retrieval_score(prediction, answer, _classes):
    return share_of_numbers(prediction, re.findall(r"Paragraph (\d+)", answer)[0])


def retrieval_zh_score(prediction, answer, _classes):
    return share_of_numbers(prediction, re.findall(r"段落(\d+)", answer)[0])


def count_score(prediction, answer, _classes):
    return share_of_numbers(prediction, str(answer))


def code_sim_score(prediction, answer, _classes):
    """Edit similarity of the first line that is code, in whole per cents."""
    import rapidfuzz
    line = next((one for one in prediction.lstrip("\n").split("\n")
                 if not any(mark in one for mark in ("`", "#", "//"))), "")
    return round(rapidfuzz.fuzz.ratio(line, answer)) / 100


METRICS = {
    "narrativeqa": qa_f1_score, "qasper": qa_f1_score, "multifieldqa_en": qa_f1_score,
    "multifieldqa_zh": qa_f1_zh_score, "hotpotqa": qa_f1_score, "2wikimqa": qa_f1_score,
    "musique": qa_f1_score, "dureader": rouge_zh_score, "gov_report": rouge_score,
    "qmsum": rouge_score, "multi_news": rouge_score, "vcsum": rouge_zh_score,
    "trec": classification_score, "triviaqa": qa_f1_score, "samsum": rouge_score,
    "lsht": classification_score, "passage_count": count_score,
    "passage_retrieval_en": retrieval_score, "passage_retrieval_zh": retrieval_zh_score,
    "lcc": code_sim_score, "repobench-p": code_sim_score,
}
# Tasks in which only the answer's first line counts.
FIRST_LINE = {"trec", "triviaqa", "samsum", "lsht"}


def score(task, prediction, answers, classes):
    """Per cent; the best value over the right answers."""
    if task in FIRST_LINE:
        prediction = prediction.lstrip("\n").split("\n")[0]
    return 100 * max((METRICS[task](prediction, answer, classes) for answer in answers),
                     default=0.0)
