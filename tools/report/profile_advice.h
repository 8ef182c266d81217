// What would make a profiled decode faster: other settings, tried on the same subject.
#pragma once

#include <string>
#include <vector>

namespace fasa {

class ProfileSubject;
struct ProfileRun;

struct Advice {
  struct Tried {
    std::string setting;  // as a line of a config file
    double seconds = 0;   // of a step; 0: it does not fit
  };
  std::string text;  // a sentence or two
  std::vector<Tried> tried;
};

// Decodes with other hot rows and without prefetch, if rows on the host cost enough to gain
// something. `steps` measured steps each, after those that warm up.
Advice advise(const ProfileSubject& subject, const ProfileRun& run, int steps);

}  // namespace fasa
