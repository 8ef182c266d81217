"""The metrics of fasa eval longbench and math against values worked out by hand. Those that need
packages run where tools/env metrics has installed them: python3 TEST.py FASA SOURCE_DIR."""
import importlib.util
import sys
import unittest

SOURCE = sys.argv[2]
sys.path.insert(0, f"{SOURCE}/tools")

from fasa_metrics import longbench, mathematics  # noqa: E402


def needs(*packages):
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    return unittest.skipIf(missing, f"{missing} missing: tools/env metrics installs them")


class LongBench(unittest.TestCase):
    def check(self, task, prediction, answers, per_cent, classes=(), places=4):
        self.assertAlmostEqual(longbench.score(task, prediction, answers, list(classes)), per_cent,
                               places=places)

    def test_every_task_has_a_metric(self):
        self.assertEqual(len(longbench.METRICS), 21)

    def test_english_f1(self):
        # cat sat on mat / cat on mat: 3 in common, precision 3/4, recall 1.
        self.check("qasper", "The cat sat on the mat.", ["a cat on a mat"], 100 * 6 / 7)
        self.check("qasper", "A dog", ["the cat"], 0)
        self.check("qasper", "", ["the cat"], 0)
        # "cat cat" has one cat in common: precision 1/2, recall 1.
        self.check("hotpotqa", "cat cat", ["cat"], 100 * 2 / 3)

    def test_the_best_of_the_answers_counts(self):
        self.check("narrativeqa", "blue", ["red", "Blue!"], 100)
        self.check("narrativeqa", "blue", [], 0)

    def test_first_lines(self):
        self.check("triviaqa", "\nParis\nQuestion: London", ["Paris"], 100)
        self.check("narrativeqa", "Paris\nLondon", ["Paris"], 100 * 2 / 3)

    def test_classification(self):
        classes = ["Food", "Food product", "Place"]
        self.check("trec", "Food product, Place", ["Food product"], 50, classes)
        self.check("trec", "Food product", ["Food product"], 100, classes)
        self.check("trec", "Place", ["Food product"], 0, classes)
        self.check("lsht", "nothing", ["Place"], 0, classes)

    def test_retrieval_and_count(self):
        self.check("passage_retrieval_en", "Paragraph 3, or 4, or 3", ["Paragraph 3"], 200 / 3)
        self.check("passage_retrieval_en", "none", ["Paragraph 3"], 0)
        self.check("passage_retrieval_zh", "段落3", ["段落3"], 100)
        self.check("passage_retrieval_zh", "段落13", ["段落3"], 0)
        self.check("passage_count", "There are 7. 7 of 9", ["7"], 200 / 3)
        self.check("passage_count", "seven", ["7"], 0)

    @needs("jieba")
    def test_chinese_f1(self):
        # Cut into 北京 是 中国 的 首都: one in common, precision 1/5, recall 1.
        self.check("multifieldqa_zh", "北京是中国的首都。", ["北京"], 100 / 3)
        self.check("multifieldqa_zh", "北京！", ["北京"], 100)

    @needs("rouge")
    def test_rouge(self):
        # "the cat" is the longest common subsequence: precision 2/3, recall 2/4.
        self.check("gov_report", "the cat sat", ["the cat lay down"], 100 * 4 / 7)
        self.check("samsum", "", ["the cat"], 0)

    @needs("rouge", "jieba")
    def test_chinese_rouge(self):
        self.check("dureader", "北京是首都", ["北京是首都"], 100)
        # 北京 是 首都 / 北京 很大: precision 1/3, recall 1/2.
        self.check("vcsum", "北京是首都", ["北京很大"], 40)

    @needs("rapidfuzz")
    def test_code(self):
        # "return a+b" / "return a + b": 10 of 10 and of 12 characters, 2 x 10 / 22 = 0.909.
        self.check("lcc", "# adds\nreturn a+b\nreturn 0", ["return a + b"], 91)
        self.check("repobench-p", "```\nx\n", ["x"], 100)
        self.check("lcc", "// only a comment", ["x"], 0)


class Mathematics(unittest.TestCase):
    def test_pass_at(self):
        self.assertEqual(mathematics.pass_at(1, 4, 1), 0.25)
        self.assertEqual(mathematics.pass_at(2, 4, 1), 0.5)
        self.assertEqual(mathematics.pass_at(2, 4, 3), 1)
        self.assertEqual(mathematics.pass_at(1, 1, 0), 0)

    @needs("math_verify")
    def test_answers_are_compared_as_mathematics(self):
        for given, wanted, right in ((r"so \boxed{\frac{1}{2}}.", "0.5", True),
                                     (r"\boxed{\frac{2}{4}}", r"\frac{1}{2}", True),
                                     (r"\boxed{0.51}", r"\frac{1}{2}", False),
                                     (r"\boxed{073}", "73", True),
                                     (r"\boxed{(3, 4)}", "(3,4)", True),
                                     (r"\boxed{(4, 3)}", "(3,4)", False),
                                     (r"\boxed{2\sqrt{2}}", r"\sqrt{8}", True),
                                     (r"first \boxed{3}, no: \boxed{4}", "4", True),
                                     ("the answer is 4", "4", False),
                                     ("", "4", False)):
            with self.subTest(given=given, wanted=wanted):
                self.assertEqual(mathematics.is_right(given, wanted), right)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
