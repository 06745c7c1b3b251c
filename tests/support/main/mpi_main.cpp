// The main function of the distributed tests: every rank runs the same cases. Only rank 0 reports, unless another rank
// fails. A rank that fails aborts the world at the end of its case, because its peers may wait for it in a collective.
#if LOCKSTEP_CATCH2_V3
#include <catch2/interfaces/catch_interfaces_reporter.hpp>
#include <catch2/reporters/catch_reporter_event_listener.hpp>
#include <catch2/reporters/catch_reporter_registrars.hpp>
using Listener = Catch::EventListenerBase;
#else
#define CATCH_CONFIG_EXTERNAL_INTERFACES
#include <catch2/catch.hpp>
using Listener = Catch::TestEventListenerBase;
#endif

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

#include "cluster/world/mpi_support.hpp"
#include "cluster/world/world.hpp"
#include "support/catch_session.hpp"

namespace {

struct CloseFile {
  void operator()(std::FILE* file) const noexcept { (void)std::fclose(file); }
};

/// Buffers the standard output of a rank other than 0. It is shown only if the rank fails.
std::unique_ptr<std::FILE, CloseFile> buffered_report;  // NOLINT: Catch2 constructs the listener without arguments

void show_buffered_report() {
  std::cout.flush();
  std::fflush(stdout);
  if (!buffered_report) return;
  int rank = 0;
  (void)MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::string text = "rank " + std::to_string(rank) + " reports:\n";
  std::rewind(buffered_report.get());
  for (int c = std::fgetc(buffered_report.get()); c != EOF; c = std::fgetc(buffered_report.get())) {
    text += static_cast<char>(c);
  }
  std::fputs(text.c_str(), stderr);
}

struct AbortOnFailure : Listener {
  using Listener::Listener;
  void testCaseEnded(const Catch::TestCaseStats& stats) override {
    if (stats.totals.testCases.failed == 0) return;
    show_buffered_report();
    int with_mpi = 0;
    if (MPI_Initialized(&with_mpi) != MPI_SUCCESS || with_mpi == 0) return;
    std::this_thread::sleep_for(std::chrono::seconds(1));  // lets other failing ranks print their reports
    (void)MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
  }
};
CATCH_REGISTER_LISTENER(AbortOnFailure)

}  // namespace

int main(int argc, char** argv) {
  try {
    const lockstep::World world;
    if (!world.is_chief()) {
      buffered_report.reset(std::tmpfile());
      if (!buffered_report || dup2(fileno(buffered_report.get()), STDOUT_FILENO) < 0) {
        throw std::runtime_error("cannot create a temporary file for a rank's report");
      }
    }
    return lockstep::testing::run_test_cases(argc, argv);
  } catch (const std::exception& error) {
    lockstep::World::end_with_error(EXIT_FAILURE, error.what());
  }
}
