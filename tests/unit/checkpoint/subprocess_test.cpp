// A child process that crashes, loops or sends invalid data does not harm its parent.
#include "checkpoint/subprocess.hpp"
#include "checkpoint/subprocess_read.hpp"

#include "support/catch.hpp"
#include "support/messages.hpp"
#include "support/scratch_directory.hpp"
#include "support/stderr_of.hpp"

#include <lockstep/core/error.hpp>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

using namespace lockstep;
using namespace lockstep::testing;

TEST_CASE("a child's numbers, strings and bytes arrive in order") {
  const std::string large(300'000, 'y');  // more than a pipe holds
  Subprocess child(
      [&](PipeWriter& output) {
        output.send(std::uint64_t{42});
        output.send(std::string("hello"));
        output.send(large);
        output.send(std::string());
      },
      {.cpu_seconds = 10});
  std::uint64_t number = 0;
  std::string text;
  CHECK((child.receive(number) && number == 42));
  CHECK((child.receive(text, 5) && text == "hello"));
  CHECK((child.receive(text, large.size()) && text == large));
  CHECK((child.receive(text, 0) && text.empty()));
  CHECK_FALSE(child.receive(number));
}

TEST_CASE("a child's bytes arrive also if standard streams are closed") {
  const int out = dup(STDOUT_FILENO);
  const int error = dup(STDERR_FILENO);
  close(STDOUT_FILENO);
  close(STDERR_FILENO);
  std::uint64_t number = 0;
  {
    Subprocess child([](PipeWriter& output) { output.send(std::uint64_t{42}); }, {.cpu_seconds = 10});
    (void)child.receive(number);
  }
  dup2(out, STDOUT_FILENO);
  dup2(error, STDERR_FILENO);
  close(out);
  close(error);
  CHECK(number == 42);
}

TEST_CASE("a child's exit status is reported") {
  std::uint64_t number = 0;
  std::string text;
  Subprocess crashed(
      [](PipeWriter& output) {
        output.send(std::uint64_t{1});
        raise(SIGSEGV);
      },
      {.cpu_seconds = 10});
  CHECK(crashed.receive(number));
  CHECK_FALSE(crashed.receive(number));
  const Subprocess::Exit crash = crashed.end();
  CHECK((crash.crashed && crash.description.find("signal 11") != std::string::npos));

  Subprocess killed([](PipeWriter&) { raise(SIGKILL); },
                    {.cpu_seconds = 10});  // as the kernel does when memory is short
  CHECK_FALSE(killed.receive(number));
  const Subprocess::Exit kill = killed.end();
  CHECK((!kill.crashed && kill.description.find("signal 9") != std::string::npos));

  Subprocess throwing([](PipeWriter&) { throw std::runtime_error("x"); }, {.cpu_seconds = 10});
  CHECK_FALSE(throwing.receive(number));
  const Subprocess::Exit exception = throwing.end();
  CHECK((!exception.crashed && exception.description == "ended early"));

  Subprocess endless(
      [](PipeWriter&) {
        for (;;) static_cast<void>(getpid());
      },
      {.cpu_seconds = 1});
  CHECK_FALSE(endless.receive(number));
  const Subprocess::Exit timeout = endless.end();
  CHECK((timeout.crashed && timeout.description == "did not finish"));

  Subprocess boasting([](PipeWriter& output) { output.send(~std::uint64_t{0}); }, {.cpu_seconds = 10});
  CHECK_FALSE(boasting.receive(text, 1000));

  Subprocess talking(
      [](PipeWriter& output) {
        for (;;) output.send(std::uint64_t{0});
      },
      {.cpu_seconds = 10});
  const Subprocess::Exit invalid = talking.end();
  CHECK((invalid.crashed && invalid.description == "sent invalid data"));
}

TEST_CASE("the wait for a child that neither answers nor ends is told, and ends") {
  const std::string log = stderr_of([] {
    Subprocess stopped(
        [](PipeWriter& output) {
          output.send(std::uint64_t{1});
          raise(SIGSTOP);
        },
        {.silence_seconds = 0.6, .report_seconds = 0.2});
    std::uint64_t number = 0;
    CHECK(stopped.receive(number));
    CHECK_FALSE(stopped.receive(number));
    const Subprocess::Exit exit = stopped.end();
    CHECK(!exit.crashed);
    CHECK(exit.description.starts_with("has sent nothing for 0.6 s and was in state T"));
    CHECK(exit.remedy == "check the disk and its mount");
    const Subprocess abandoned([](PipeWriter&) { raise(SIGSTOP); }, {});  // its destructor kills it
  });
  require_words(log, {"s more for process", "which reads a file; it is in state T"});
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
      {.memory = 100'000'000});
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
      {.cpu_seconds = 60});
}

TEST_CASE("only a child that fails by itself makes a file damaged") {
  const ScratchDirectory scratch;
  const std::filesystem::path file = scratch / "model.h5";
  std::ofstream(file) << "content";
  const auto read = [](const std::filesystem::path& path, const std::function<void()>& fail) {
    read_in_subprocess(
        path,
        [&fail]() -> SendResult {
          fail();
          return [](PipeWriter&) {};
        },
        [](const Subprocess&) { return true; });
  };
  CHECK_NOTHROW(read(file, [] {}));
  require_words(message_of<DataError>([&] { read(file, [] { raise(SIGSEGV); }); }), {file.string(), "signal 11"});
  require_words(message_of<DataError>([&] { read(file, [] { throw std::bad_alloc(); }); }), {"more memory than"});
  require_words(message_of<IoError>([&] { read(file, [] { raise(SIGKILL); }); }), {"signal 9", "try again"});

#if !defined(__SANITIZE_ADDRESS__)  // AddressSanitizer needs more memory than the limit
  SECTION("too little memory for an intact file") {
    const pid_t child = fork();
    if (child == 0) {
      const rlimit small{std::uint64_t{512} << 20U, std::uint64_t{512} << 20U};
      setrlimit(RLIMIT_DATA, &small);
      const std::string message = message_of<IoError>([&] { read(file, [] { throw std::bad_alloc(); }); });
      _exit(message.find("too little memory") != std::string::npos ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    CHECK(status == 0);
  }
#endif
  SECTION("a file of which not every byte can be read") {
    const auto refuse = [] { throw DataError("damaged"); };
    CHECK(message_of<DataError>([&] { read(file, refuse); }) == "damaged");
    require_words(message_of<IoError>([&] { read(scratch.path(), refuse); }), {"Is a directory", "check the disk"});
  }
}
