// A child process that crashes, loops or sends invalid data does not harm its parent.
#include "checkpoint/subprocess.hpp"

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

TEST_CASE("a child's numbers, strings and bytes arrive in order") {
  const std::string large(300'000, 'y');  // more than a pipe holds
  Subprocess child(
      [&](PipeWriter& output) {
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

TEST_CASE("a child's exit status is reported") {
  std::uint64_t number = 0;
  std::string text;
  Subprocess crashed(
      [](PipeWriter& output) {
        output.send(std::uint64_t{1});
        raise(SIGSEGV);
      },
      10);
  CHECK(crashed.receive(number));
  CHECK_FALSE(crashed.receive(number));
  CHECK(crashed.describe_exit().find("signal 11") != std::string::npos);

  Subprocess throwing([](PipeWriter&) { throw std::runtime_error("x"); }, 10);
  CHECK_FALSE(throwing.receive(number));
  CHECK(throwing.describe_exit() == "ended early");

  Subprocess endless(
      [](PipeWriter&) {
        for (;;) static_cast<void>(getpid());
      },
      1);
  CHECK_FALSE(endless.receive(number));
  CHECK(endless.describe_exit() == "did not finish");

  Subprocess boasting([](PipeWriter& output) { output.send(~std::uint64_t{0}); }, 10);
  CHECK_FALSE(boasting.receive(text, 1000));
}

TEST_CASE("a child that exceeds its memory limit fails without harming its parent") {
  const std::vector<char> of_parent(300'000'000, 'p');  // does not count against the child's limit
  Subprocess child(
      [](PipeWriter& output) {
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
#if !defined(__SANITIZE_ADDRESS__)  // AddressSanitizer's allocator ends the process instead
  REQUIRE(child.receive(large));
  CHECK(large == 0);
#else
  CHECK_FALSE(child.receive(large));
#endif
}

TEST_CASE("a child whose pipe is closed is killed") {
  const Subprocess child(
      [](PipeWriter& output) {
        const std::string large(1'000'000, 'z');
        for (;;) output.send(large);
      },
      60);
}
