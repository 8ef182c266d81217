#include "runtime/llm/gguf/gguf_pre_tokenizer.h"

#include <fmt/format.h>

#include <map>

namespace fasa {
namespace {

using Json = nlohmann::json;

// Not a pattern: numbers as Hugging Face's "Digits" finds them.
constexpr const char* kDigits = "digits";

constexpr const char* kContractions = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
constexpr const char* kBlanks = R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kNumber = R"(\p{N})";
constexpr const char* kUpToThree = R"(\p{N}{1,3})";
constexpr const char* kWord = R"([^\r\n\p{L}\p{N}]?\p{L}+)";
constexpr const char* kSigns = R"( ?[^\s\p{L}\p{N}]+[\r\n]*)";
constexpr const char* kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr const char* kThreeDigits = "[0-9][0-9][0-9]";
constexpr const char* kBloom = R"( ?[^(\s|.,!?…。，、।۔،)]+)";
constexpr const char* kKanaAndHan = "[一-龥぀-ゟ゠-ヿ]+";
constexpr const char* kHanAndHangul = "[一-龥ࠀ-一가-퟿]+";
// Hangul, wide punctuation, Bopomofo, Han and kana.
constexpr const char* kScripts =
    "[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|"
    "[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+";
// Letters with two cases.
constexpr const char* kCasedLetters =
    R"(\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕ)"
    R"(Ἐ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲ)"
    R"(ⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+)";
constexpr const char* kSignsAndPunctuation = R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)";
constexpr const char* kSignThenLetters = R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+)";
constexpr const char* kMarkedWord = R"([^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)";

// Words, numbers by `digits`, signs by `signs`.
std::string words(const char* digits, const char* signs = kSigns) {
  return fmt::format("{}|{}|{}|{}|{}", kContractions, kWord, digits, signs, kBlanks);
}

// Words whose letters may have marks.
std::string marked_words() {
  return fmt::format(
      R"({}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|{}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{})",
      kContractions, kNumber, kBlanks);
}

// Words in capitals or lower case, each followed by `ending`.
std::string cased_words(const std::string& ending, const char* digits) {
  constexpr const char* kUpper = R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])";
  constexpr const char* kLower = R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])";
  constexpr const char* kBefore = R"([^\r\n\p{L}\p{N}]?)";
  return fmt::format(R"({0}{1}*{2}+{3}|{0}{1}+{2}*{3}|{4}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{5})",
                     kBefore, kUpper, kLower, ending, digits, kBlanks);
}

std::string contracted_words(const char* digits) {
  return cased_words(fmt::format("{}?", kContractions), digits);
}

std::string deepseek_words(const char* after_signs, const char* lines) {
  return fmt::format(R"({}|{}| ?[\p{{P}}\p{{S}}]+{}|{}|\s+(?!\S)|\s+)", kSignThenLetters,
                     kMarkedWord, after_signs, lines);
}

// `names`: separated by blanks.
struct Row {
  const char* names;
  GgufPreTokenizer how;
};

// Words with the sign before them. NFC where the models' own tokenizer.json has it; llama.cpp has
// it nowhere.
std::vector<Row> word_rows() {
  return {
      {"llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
       {.patterns = {words(kUpToThree)}, .ignore_merges = true, .adds_beginning = true}},
      {"dbrx smaug-bpe", {.patterns = {words(kUpToThree)}}},
      {"glm4 glm5",
       {.patterns = {words(kUpToThree)}, .ignore_merges = true, .has_beginning = false}},
      {"chatglm-bpe", {.patterns = {words(kUpToThree)}, .has_beginning = false}},
      {"jais-2",
       {.patterns = {fmt::format(
            R"({}|{}|{}|{}|\s*[\r\n]+|\s{{512}}(?!\S)|\s{{256}}(?!\S)|\s{{128}}(?!\S)|)"
            R"(\s{{64}}(?!\S)|\s{{32}}(?!\S)|\s{{16}}(?!\S)|\s{{8}}(?!\S)|\s{{4}}(?!\S)|)"
            R"(\s{{1,2}}(?!\S)|\s{{1}})",
            kContractions, kWord, kUpToThree, kSigns)}}},
      {"minicpm5", {.patterns = {kUpToThree, words(R"(\p{N}+)")}, .ignore_merges = true}},
      {"qwen2", {.patterns = {words(kNumber)}, .composes = true}},
      {"deepseek-r1-qwen megrez kormo f2llmv2 stablelm2 hunyuan solar-open grok-2",
       {.patterns = {words(kNumber)}}},
      {"qwen35", {.patterns = {marked_words()}, .composes = true}},
      {"laguna", {.patterns = {R"([^\n]+|[\n]+)", words(kNumber)}}},
      {"ufakzeka", {.patterns = {fmt::format("{}|{}|{}|{}", kWord, kNumber, kSigns, kBlanks)}}},
      {"seed-coder",
       {.patterns = {words(kNumber, R"( ?[^\s\p{L}\p{N}\r\n]+)")}, .ignore_merges = true}},
      {"bailingmoe bailingmoe2 llada-moe",
       {.patterns = {fmt::format(R"({}|{}|{}|{}|\s*[\r\n]|\s+(?!\S)|\s+)", kContractions, kWord,
                                 kNumber, kSigns)}}},
      {"exaone-moe",
       {.patterns = {fmt::format(
            R"({}|[^\r\n\p{{L}}\p{{N}}]?(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}|)"
            R"( ?[^\s\p{{L}}\p{{N}}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)",
            kContractions)}}},
      {"tekken",
       {.patterns = {cased_words("", kNumber)}, .ignore_merges = true, .adds_beginning = true}},
      {"gpt-4o llama4 kanana2 minimax-m2 talkie",
       {.patterns = {contracted_words(kUpToThree)}, .ignore_merges = true}},
      {"tiny_aya cohere2moe",
       {.patterns = {R"(\d{1,3}(?=(?:\d{3})*\b))", contracted_words(kUpToThree)}}},
      {"youtu", {.patterns = {kScripts, contracted_words(kNumber)}, .ignore_merges = true}},
  };
}

// Splits in several steps, many of them with GPT-2's words.
std::vector<Row> step_rows() {
  const std::string deepseek3 = deepseek_words(R"([\r\n]*)", R"(\s*[\r\n]+)");
  return {
      {"gpt-2 phi-2 exaone4 a.x-4.0 mellum gigachat jais trillion granite-docling",
       {.patterns = {kGpt2}}},
      {"mpt olmo", {.patterns = {kGpt2}, .composes = true}},
      {"smollm refact starcoder codeshell exaone minerva-7b mellum2",
       {.patterns = {kDigits, kGpt2}}},
      {"command-r", {.patterns = {kDigits, kGpt2}, .composes = true}},
      {"bloom poro-chat gpt3-finnish", {.patterns = {kBloom}}},
      {"viking", {.patterns = {kBloom, kNumber}}},
      {"falcon", {.patterns = {R"([\p{P}$+<=>\^~|`]+)", kGpt2, kThreeDigits}}},
      {"default", {.patterns = {R"([\p{P}$+<=>\^~|]+)", kGpt2, R"(\p{N}+)", kThreeDigits}}},
      {"deepseek-llm",
       {.patterns = {R"([\r\n])", kCasedLetters, kSignsAndPunctuation, R"(\s+$)", kHanAndHangul,
                     kNumber}}},
      {"deepseek-coder",
       {.patterns = {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", kHanAndHangul, kNumber}}},
      {"deepseek-v3 hunyuan-dense joyai-llm hy_v4",
       {.patterns = {kUpToThree, kKanaAndHan, deepseek3}}},
      {"spark2_5",
       {.patterns = {kUpToThree, kKanaAndHan, deepseek_words("", R"([\r\n])"), kNumber}}},
      {"superbpe", {.patterns = {R"(\p{N}+)", R"((?=(\d{3})+(?!\d)))"}}},
      {"gemma4", {.patterns = {R"([^\n]+|[\n]+)"}, .adds_beginning = true, .byte_level = false}},
  };
}

using Table = std::map<std::string, GgufPreTokenizer, std::less<>>;

void add(const Row& row, Table* table) {
  std::string_view names = row.names;
  while (!names.empty()) {
    const size_t end = std::min(names.find(' '), names.size());
    table->emplace(names.substr(0, end), row.how);
    names.remove_prefix(std::min(end + 1, names.size()));
  }
}

const Table& table() {
  static const Table made = [] {
    Table all;
    for (const auto& rows : {word_rows(), step_rows()}) {
      for (const Row& row : rows) add(row, &all);
    }
    return all;
  }();
  return made;
}

}  // namespace

Json GgufPreTokenizer::normalizer() const {
  if (!byte_level) {
    return {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}};
  }
  return composes ? Json{{"type", "NFC"}} : Json();
}

Json GgufPreTokenizer::pre_tokenizer() const {
  Json steps = Json::array();
  for (const std::string& pattern : patterns) {
    if (pattern == kDigits) {
      steps.push_back({{"type", "Digits"}, {"individual_digits", true}});
    } else {
      steps.push_back({{"type", "Split"},
                       {"pattern", {{"Regex", pattern}}},
                       {"behavior", "Isolated"},
                       {"invert", false}});
    }
  }
  if (byte_level) {
    steps.push_back({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}});
  }
  return {{"type", "Sequence"}, {"pretokenizers", steps}};
}

const GgufPreTokenizer* find_gguf_pre_tokenizer(std::string_view name) {
  const auto found = table().find(name);
  return found == table().end() ? nullptr : &found->second;
}

std::string gguf_pre_tokenizer_names() {
  std::string names;
  for (const auto& [name, how] : table()) names += (names.empty() ? "" : ", ") + name;
  return names;
}

}  // namespace fasa
