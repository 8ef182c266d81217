#include "bindings/http/session_title.h"

#include <gtest/gtest.h>

#include <string>

namespace fasa::serve {
namespace {

TEST(SessionTitle, IsTheFirstLineThatIsNotBlank) {
  EXPECT_EQ(title_of(" \n\n  And Ruth said \r\nmore"), "And Ruth said");
  EXPECT_EQ(title_of("Question:\nWhat is it?"), "Question:");
  EXPECT_EQ(title_of(""), "");
  EXPECT_EQ(title_of(" \n "), "");
}

TEST(SessionTitle, PassesOverAttachedTexts) {
  EXPECT_EQ(title_of("ruth.txt:\n```\nIn the days\n```\n\nWho is it?"), "Who is it?");
  EXPECT_EQ(title_of("a.md:\n````\n```\ncode\n```\n````\n\nb.txt:\n```\nx\n```\n\nCompare them"),
            "Compare them");
  EXPECT_EQ(title_of("```cpp\nint x;\n```\nWhy?"), "Why?");
}

TEST(SessionTitle, IsTheFirstLineIfThereIsNothingElse) {
  EXPECT_EQ(title_of("ruth.txt:\n```\nIn the days\n```\n"), "ruth.txt:");
  EXPECT_EQ(title_of("```\nIn the days"), "```");
}

TEST(SessionTitle, IsCutBetweenCharacters) {
  const std::string fits(79, 'a');
  std::string text = fits;
  text.append("\u00e9");
  EXPECT_EQ(title_of(text), fits);
}

}  // namespace
}  // namespace fasa::serve
