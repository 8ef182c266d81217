// The simulation as a program: tools/simulate.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <string>

#include "tests/simulation/seed_runs.h"

namespace {

using namespace fasa::testing;

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Simulation runs of a runtime, each drawn from a seed; the first that goes wrong ends it.");
  std::string seeds = "0..299";
  SeedRuns runs;
  app.add_option("--seeds", seeds, "A..B, both included");
  app.add_option("--operations", runs.operations, "of each seed");
  app.add_option("--jobs", runs.jobs, "threads");
  app.add_option("--state", runs.state, "file that says how far it was; goes on there");
  app.add_flag("--faults,!--no-faults", runs.faults, "whether calls fail now and then");
  app.add_flag("--verbose", runs.verbose, "prints every operation");
  CLI11_PARSE(app, argc, argv);
  try {
    runs.take(seeds);
    return run_seeds(runs) ? EXIT_SUCCESS : EXIT_FAILURE;
  } catch (const std::exception& error) {
    std::cerr << "simulate: " << error.what() << '\n';
    return 2;
  }
}
