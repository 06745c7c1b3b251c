// A child that crashes, loops or lies costs its parent nothing.
#include "checkpoint/child_process.hpp"

#include "support/catch.hpp"

#include <unistd.h>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

using namespace lockstep;

TEST_CASE("a child's numbers, texts and bytes arrive in order") {
  const std::string large(300'000, 'y');  // more than a pipe holds
  ChildProcess child(
      [&](ChildOutput& output) {
        output.send(std::uint64_t{42});
        output.send(std::string("hello"));
        output.send(large);
        output.send(std::string());
      },
      10);
  std::uint64_t number = 0;
  std::string text;
  CHECK((child.receive(number) && number == 42));
  CHECK((child.receive(text, 5) && text == "hello"));
  CHECK((child.receive(text, large.size()) && text == large));
  CHECK((child.receive(text, 0) && text.empty()));
  CHECK_FALSE(child.receive(number));
}

TEST_CASE("how a child ended is told") {
  std::uint64_t number = 0;
  std::string text;
  ChildProcess crashed(
      [](ChildOutput& output) {
        output.send(std::uint64_t{1});
        raise(SIGSEGV);
      },
      10);
  CHECK(crashed.receive(number));
  CHECK_FALSE(crashed.receive(number));
  CHECK(crashed.describe_end().find("signal 11") != std::string::npos);

  ChildProcess throwing([](ChildOutput&) { throw std::runtime_error("x"); }, 10);
  CHECK_FALSE(throwing.receive(number));
  CHECK(throwing.describe_end() == "ended early");

  ChildProcess endless(
      [](ChildOutput&) {
        for (;;) static_cast<void>(getpid());
      },
      1);
  CHECK_FALSE(endless.receive(number));
  CHECK(endless.describe_end() == "did not come to an end");

  ChildProcess boasting([](ChildOutput& output) { output.send(~std::uint64_t{0}); }, 10);
  CHECK_FALSE(boasting.receive(text, 1000));
}

TEST_CASE("a child that takes too much memory hears of it, its parent keeps all it has") {
  const std::vector<char> of_parent(300'000'000, 'p');  // does not count
  ChildProcess child(
      [](ChildOutput& output) {
        const auto fits = [](std::size_t size) {
          try {
            return std::vector<char>(size, 'c').back() == 'c';
          } catch (const std::bad_alloc&) {
            return false;
          }
        };
        output.send(std::uint64_t{fits(50'000'000)});
        output.send(std::uint64_t{fits(200'000'000)});
      },
      10, 100'000'000);
  std::uint64_t small = 0;
  std::uint64_t large = 1;
  REQUIRE(child.receive(small));
  CHECK(small == 1);
#if !defined(__SANITIZE_ADDRESS__)  // whose allocator ends the process instead
  REQUIRE(child.receive(large));
  CHECK(large == 0);
#else
  CHECK_FALSE(child.receive(large));
#endif
}

TEST_CASE("a child nobody listens to is ended") {
  const ChildProcess child(
      [](ChildOutput& output) {
        const std::string large(1'000'000, 'z');
        for (;;) output.send(large);
      },
      60);
}
