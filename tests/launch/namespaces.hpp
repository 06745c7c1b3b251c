// Hosts on one machine: network namespaces, each with its own address, on one bridge.
#pragma once

#include <string>
#include <vector>

class Namespaces {
 public:
  explicit Namespaces(int count);
  ~Namespaces();
  Namespaces(const Namespaces&) = delete;
  Namespaces& operator=(const Namespaces&) = delete;

  /// Why namespaces are unavailable; "" if they are available.
  [[nodiscard]] const std::string& why_not() const { return why_not_; }
  [[nodiscard]] const std::string& name(int host) const { return names_.at(static_cast<std::size_t>(host) + 1); }
  [[nodiscard]] static std::string address(int host) { return "10.87.31." + std::to_string(host + 1); }

 private:
  bool run(const std::string& command);

  std::vector<std::string> names_;  ///< the bridge's first
  std::string why_not_;
};

/// While this object lives, processes started by this thread run in that namespace; "" for the current one.
class InNamespace {
 public:
  explicit InNamespace(const std::string& name);
  ~InNamespace();
  InNamespace(const InNamespace&) = delete;
  InNamespace& operator=(const InNamespace&) = delete;

 private:
  int before_ = -1;
};
