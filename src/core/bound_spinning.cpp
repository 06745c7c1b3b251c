// See bound_spinning.hpp.
#include "core/bound_spinning.hpp"

#include "core/environment.hpp"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

namespace lockstep {

namespace {

/// Tens of microseconds: longer than threads of an undisturbed step wait for each other, shorter than a time slice.
constexpr const char* spin_count = "1000";

std::vector<std::string> own_command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

}  // namespace

void bound_spinning() {
  const Environment environment = current_environment();
  if (environment.contains("GOMP_SPINCOUNT") || environment.contains("OMP_WAIT_POLICY")) return;
  if (value_of(environment, "OMP_NUM_THREADS") == "1") return;
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  std::vector<std::string> words = own_command_line();
  if (error || words.empty()) return;
  if (::setenv("GOMP_SPINCOUNT", spin_count, 1) != 0) return;  // NOLINT(concurrency-mt-unsafe): before any thread
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  (void)::execv(self.c_str(), arguments.data());
}

}  // namespace lockstep
