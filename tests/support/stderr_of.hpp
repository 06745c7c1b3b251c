// What a piece of work prints on standard error.
#pragma once

#include "support/catch.hpp"

#include <unistd.h>
#include <cstdio>
#include <memory>
#include <string>

namespace lockstep::testing {

/// Returns what `action` prints on standard error.
template <typename Action>
std::string stderr_of(Action action) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::tmpfile(), &std::fclose);
  REQUIRE(file);
  const int saved = dup(STDERR_FILENO);
  REQUIRE(saved >= 0);
  REQUIRE(dup2(fileno(file.get()), STDERR_FILENO) >= 0);
  action();
  REQUIRE(dup2(saved, STDERR_FILENO) >= 0);
  close(saved);
  std::string text;
  std::rewind(file.get());
  for (int c = std::fgetc(file.get()); c != EOF; c = std::fgetc(file.get())) text += static_cast<char>(c);
  return text;
}

}  // namespace lockstep::testing
