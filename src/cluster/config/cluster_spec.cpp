// See cluster_spec.hpp.
#include "cluster/config/cluster_spec.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <algorithm>
#include <string>

namespace lockstep {

std::string to_string(TaskType type) {
  switch (type) {
    case TaskType::chief: return "chief";
    case TaskType::master: return "master";
    case TaskType::worker: return "worker";
    case TaskType::ps: return "ps";
  }
  return "task";
}

std::string Task::name() const { return fmt::format("{} {}", to_string(type), index); }

const Task& ClusterSpec::own_task() const {
  if (!server && !rank) throw InternalError("this process is no task of its cluster");
  return server ? servers.at(*server) : tasks.at(*rank);
}

bool ClusterSpec::spans_hosts() const {
  const auto is_elsewhere = [&](const Task& task) {
    return normalized_address({task.address.host, 0}) != normalized_address({tasks.front().address.host, 0});
  };
  return std::ranges::any_of(tasks, is_elsewhere) || std::ranges::any_of(servers, is_elsewhere);
}

Digest ClusterSpec::digest() const {
  Digest digest;
  for (const std::vector<Task>* list : {&tasks, &servers}) {
    for (const Task& task : *list) {
      const std::string line = task.name() + " " + normalized_address(task.address) + "\n";
      digest.add(line.data(), line.size());
    }
  }
  return digest;
}

std::string normalized_address(const Address& address) {
  std::string key = address.to_string();
  std::transform(key.begin(), key.end(), key.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return key;
}

}  // namespace lockstep
