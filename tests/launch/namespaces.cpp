// See namespaces.hpp.
#include "namespaces.hpp"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <stdexcept>

Namespaces::Namespaces(int count) {
  const std::string prefix = "lockstep" + std::to_string(getpid()) + "-";
  for (int i = 0; i <= count; ++i) {
    names_.push_back(prefix + std::to_string(i));
    if (!run("netns add " + names_.back())) {
      names_.pop_back();
      return;
    }
    if (!run("-n " + names_.back() + " link set lo up")) return;
  }
  const std::string& hub = names_[0];
  if (!run("-n " + hub + " link add bridge type bridge") || !run("-n " + hub + " link set bridge up")) return;
  for (int host = 0; host < count; ++host) {
    const std::string port = "port" + std::to_string(host);
    if (!run("link add link0 netns " + name(host) + " type veth peer name " + port + " netns " + hub) ||
        !run("-n " + hub + " link set " + port + " master bridge up") ||
        !run("-n " + name(host) + " address add " + address(host) + "/24 dev link0") ||
        !run("-n " + name(host) + " link set link0 up")) {
      return;
    }
  }
}

Namespaces::~Namespaces() {
  for (const std::string& name : names_) run("netns delete " + name);
}

bool Namespaces::run(const std::string& command) {
  const std::string whole = "ip " + command + " 2>&1";
  std::FILE* pipe = popen(whole.c_str(), "re");
  if (pipe == nullptr) throw std::runtime_error("popen failed");
  std::string said;
  std::array<char, 256> text{};
  while (std::fgets(text.data(), text.size(), pipe) != nullptr) said += text.data();
  if (pclose(pipe) == 0) return true;
  why_not_ = "ip " + command + ": " + said;
  return false;
}

InNamespace::InNamespace(const std::string& name) {
  if (name.empty()) return;
  before_ = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
  const int there = open(("/run/netns/" + name).c_str(), O_RDONLY | O_CLOEXEC);
  const bool done = there >= 0 && setns(there, CLONE_NEWNET) == 0;
  if (there >= 0) close(there);
  if (!done) throw std::runtime_error("cannot enter the network namespace " + name);
}

InNamespace::~InNamespace() {
  if (before_ < 0) return;
  if (setns(before_, CLONE_NEWNET) != 0) std::abort();  // otherwise later code would run in the wrong namespace
  close(before_);
}
