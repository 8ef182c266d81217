// Payments told in prose, to be written as lines of JSON.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "runtime/base/error.h"
#include "runtime/eval/tasks/drawn_texts.h"
#include "runtime/eval/tasks/word_lists.h"
#include "runtime/io/json_fields.h"

namespace fasa {
namespace {

using Json = nlohmann::json;

constexpr std::array kForms = {"On {date}, {payer} paid {amount} to {payee}. ",
                               "{payer} sent {payee} {amount} on {date}. ",
                               "{payee} received {amount} from {payer} on {date}. "};
constexpr std::array kMonths = {"January",   "February", "March",    "April",
                                "May",       "June",     "July",     "August",
                                "September", "October",  "November", "December"};
constexpr std::array kHouses = {"Mill", "Works", "Press", "Trade", "Bank", "Farm"};

struct Payment {
  std::string payer, payee, date;
  int amount;

  std::string sentence(std::string_view form) const {
    return fmt::format(fmt::runtime(form), fmt::arg("date", date), fmt::arg("payer", payer),
                       fmt::arg("amount", amount), fmt::arg("payee", payee));
  }
  std::string json() const {
    return fmt::format(R"({{"payer": "{}", "amount": {}, "payee": "{}", "date": "{}"}})", payer,
                       amount, payee, date);
  }
};

std::vector<Payment> draw_payments(int count, std::mt19937_64& random) {
  std::vector<Payment> payments;
  for (const auto& payer : draw_people(static_cast<size_t>(count), random)) {
    std::string house = draw_words(1, random).front();
    house.front() = static_cast<char>(house.front() - 'a' + 'A');
    const std::string payee =
        fmt::format("{} {}", house, kHouses[draw_below(kHouses.size(), random)]);
    const size_t day = 1 + draw_below(28, random);
    payments.push_back({payer, payee,
                        fmt::format("{} {}", day, kMonths[draw_below(kMonths.size(), random)]),
                        100 + static_cast<int>(draw_below(9900, random))});
  }
  return payments;
}

// The objects without objects in them that a text has, on one line or several.
std::vector<Json> objects_in(std::string_view text) {
  std::vector<Json> objects;
  size_t begin = 0;  // behind the object before
  for (size_t end = 0; (end = text.find('}', begin)) != std::string_view::npos; begin = end + 1) {
    const size_t first = text.substr(begin, end - begin).rfind('{');
    if (first == std::string_view::npos) continue;
    try {
      objects.push_back(parse_json(text.substr(begin + first, end + 1 - begin - first), "answer"));
    } catch (const InputError&) {
      // No JSON: not counted.
    }
  }
  return objects;
}

std::string value_text(const Json& value) {
  return value.is_string() ? value.get<std::string>()
                           : value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

size_t same_fields(const Json& one, const Json& other) {
  size_t same = 0;
  for (const auto& [name, value] : one.items()) {
    same += other.contains(name) && value_text(other.at(name)) == value_text(value) ? 1 : 0;
  }
  return same;
}

}  // namespace

double record_f1(const std::vector<std::string>& references, std::string_view answer) {
  std::vector<Json> expected;
  size_t known = 0, said = 0, right = 0;
  for (const auto& text : references) {
    expected.push_back(parse_json(text, "reference"));
    known += expected.back().size();
  }
  for (const Json& object : objects_in(answer)) {
    said += object.size();
    const auto closest =
        std::max_element(expected.begin(), expected.end(), [&](const Json& a, const Json& b) {
          return same_fields(object, a) < same_fields(object, b);
        });
    if (closest == expected.end() || same_fields(object, *closest) == 0) continue;
    right += same_fields(object, *closest);
    expected.erase(closest);
  }
  return known + said == 0 ? 0 : 2 * static_cast<double>(right) / static_cast<double>(known + said);
}

DrawnText draw_records(const DrawnKind& /*kind*/, const Drawing& drawing) {
  const auto payments = draw_payments(drawing.records, drawing.random);
  std::vector<PlacedSentence> placed;
  Question question;
  question.text = fmt::format(
      "\n\nWrite each payment of this text as a line of JSON, in the text's order, as in\n{}\n"
      "Payments:\n",
      Payment{"Ada Smith", "Old Mill", "1 May", 100}.json());
  for (size_t i = 0; i < payments.size(); ++i) {
    const char* form = kForms[draw_below(kForms.size(), drawing.random)];
    placed.push_back(
        {(2 * i + 1) * drawing.units / (2 * payments.size()), payments[i].sentence(form)});
    question.references.push_back(payments[i].json());
  }
  question.answer = fmt::format("{}\n", fmt::join(question.references, "\n"));
  const size_t first = draw_below(drawing.texts.size(), drawing.random);
  DrawnText drawn;
  drawn.text = join(drawing.texts.take(first, drawing.units), placed);
  drawn.questions.push_back(std::move(question));
  return drawn;
}

}  // namespace fasa
