// See host_id.hpp.
#include "cluster/net/host_id.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>
#include <array>
#include <fstream>
#include <string>
#include <string_view>

namespace lockstep {

std::string host_id() {
  std::string boot_id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot_id;
  struct stat shm {};
  if (boot_id.empty() || stat("/dev/shm", &shm) != 0) return "";
  struct stat network {};
  if (stat("/proc/self/ns/net", &network) != 0) network.st_ino = 0;
  return fmt::format("{} {} {}", boot_id, shm.st_dev, network.st_ino);
}

std::string_view machine_id(std::string_view identity) { return identity.substr(0, identity.find(' ')); }

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "localhost";
  return name.data();
}

}  // namespace lockstep
