// See cluster_spec.hpp.
#include "cluster/cluster_spec.hpp"

#include <algorithm>
#include <string>

namespace lockstep {

std::string to_string(TaskType type) {
  switch (type) {
    case TaskType::chief: return "chief";
    case TaskType::master: return "master";
    case TaskType::worker: return "worker";
  }
  return "task";
}

std::string Task::name() const { return to_string(type) + " " + std::to_string(index); }

Digest ClusterSpec::digest() const {
  Digest digest;
  for (const Task& task : tasks) {
    const std::string line = task.name() + " " + key_of(task.address) + "\n";
    digest.add(line.data(), line.size());
  }
  return digest;
}

std::string key_of(const Address& address) {
  std::string key = address.to_string();
  std::transform(key.begin(), key.end(), key.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return key;
}

}  // namespace lockstep
