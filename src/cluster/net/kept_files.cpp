// See kept_files.hpp.
#include "cluster/net/kept_files.hpp"

#include "core/environment.hpp"
#include "core/parse_number.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

bool KeptFiles::add(FileDescriptor file) {
  // A lock and its successor are both kept for a moment.
  constexpr std::size_t max_files = max_directories + 1;
  std::erase_if(files_, [](const FileDescriptor& each) {
    struct stat status {};
    return fstat(each.number(), &status) == 0 && status.st_nlink == 0;
  });
  if (files_.size() == max_files) return false;
  files_.push_back(std::move(file));
  return true;
}

void KeptFiles::let_inherit() const noexcept {
  for (const FileDescriptor& file : files_) (void)fcntl(file.number(), F_SETFD, 0);
}

std::string KeptFiles::numbers() const {
  std::vector<int> numbers;
  for (const FileDescriptor& file : files_) numbers.push_back(file.number());
  return fmt::format("{}", fmt::join(numbers, ","));
}

std::vector<FileDescriptor> inherited_files() {
  std::vector<FileDescriptor> files;
  std::istringstream numbers(value_of(current_environment(), kept_files_variable));
  for (std::string text; std::getline(numbers, text, ',');) {
    const int number = parse_number<int>(text).value_or(-1);
    struct stat status {};
    // A script between launcher and trainer may have closed it.
    if (number <= STDERR_FILENO || fstat(number, &status) != 0 || !S_ISREG(status.st_mode)) continue;
    (void)fcntl(number, F_SETFD, FD_CLOEXEC);
    files.emplace_back(fcntl(number, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  }
  return files;
}

bool send_file(int socket, const FileDescriptor& file) noexcept {
  char byte = no_message;
  iovec data{&byte, sizeof byte};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> control{};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  cmsghdr* const part = CMSG_FIRSTHDR(&header);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(sizeof(int));
  const int number = file.number();
  std::memcpy(CMSG_DATA(part), &number, sizeof number);
  return sendmsg(socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL) == sizeof byte;
}

ReceivedMessage receive_message(int socket, std::span<char> bytes) noexcept {
  iovec data{bytes.data(), bytes.size()};
  // Of more files than fit, the kernel closes the others.
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(ucred)) + CMSG_SPACE(sizeof(int))> control{};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  ReceivedMessage received;
  received.count = recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
  if (received.count < 0) return received;
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET) continue;
    if (part->cmsg_type == SCM_CREDENTIALS) {
      ucred credentials{};
      std::memcpy(&credentials, CMSG_DATA(part), sizeof credentials);
      received.sender = credentials.pid;
    }
    for (std::size_t at = 0; part->cmsg_type == SCM_RIGHTS && CMSG_LEN(at + sizeof(int)) <= part->cmsg_len;
         at += sizeof(int)) {
      int number = -1;
      std::memcpy(&number, CMSG_DATA(part) + at, sizeof number);
      received.file = FileDescriptor(number);  // closes the one before
    }
  }
  return received;
}

}  // namespace lockstep
