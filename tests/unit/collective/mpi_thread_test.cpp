// The thread that serves the tasks of a program's own threads.
#include "collective/mpi_thread.hpp"

#include "support/catch.hpp"

#include <atomic>
#include <future>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using namespace lockstep;

TEST_CASE("tasks of several threads run one at a time") {
  MpiThread mpi;
  int served = 0;  // by one thread only, so it needs no lock
  std::atomic<int> unserved{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        std::string result;
        mpi.run([&] { result = std::to_string(++served); });
        if (result.empty()) ++unserved;
        mpi.post([&] { ++served; });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  mpi.stop();
  REQUIRE(served == 400);
  REQUIRE(unserved == 0);
}

TEST_CASE("no task runs after one has failed, but for those that end the world") {
  MpiThread mpi;
  mpi.post([] { throw std::runtime_error("a rank is lost"); });
  bool ran = false;
  REQUIRE_THROWS_WITH(mpi.run([&] { ran = true; }), "a rank is lost");
  REQUIRE_THROWS_WITH(mpi.run([&] { ran = true; }), "a rank is lost");
  REQUIRE_FALSE(ran);
  REQUIRE(mpi.run_within(10, [&] { ran = true; }));
  REQUIRE(ran);
  mpi.stop();
}

TEST_CASE("a waiting caller may give up") {
  std::promise<void> released;
  std::atomic<bool> has_ended{false};
  {
    MpiThread mpi([] { throw std::runtime_error("interrupted"); });
    REQUIRE_THROWS_WITH(mpi.run([&] {
      released.get_future().wait();
      has_ended = true;
    }),
                        "interrupted");
    REQUIRE_FALSE(mpi.run_within(0.05, [] {}));
  }
  released.set_value();  // the task goes on, unattended
  while (!has_ended) std::this_thread::yield();
}
