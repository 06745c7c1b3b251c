// See connection_table.hpp.
#include "serve/connection_table.hpp"

#include <sys/socket.h>
#include <sys/stat.h>
#include <cstddef>
#include <iterator>

namespace lockstep {

namespace {

/// 0 if nothing is open there.
ino_t socket_of(int descriptor) noexcept {
  struct stat status {};
  return fstat(descriptor, &status) == 0 ? status.st_ino : 0;
}

}  // namespace

void ConnectionTable::Connection::receive(std::size_t bytes) {
  if (!is_open_) return;
  bytes_ += bytes;
  table_->received_bytes_ += bytes;
  if (table_->received_bytes_ > table_->limits_.max_received_bytes) table_->end(*this, EndOfConnection::memory);
}

ConnectionTable::Connection& ConnectionTable::add(int descriptor, double now) {
  if (open_ >= limits_.max_connections) make_room();
  Connection& added = connections_[descriptor];
  forget(added);  // another one had this number
  added.table_ = this;
  added.descriptor_ = descriptor;
  added.socket_ = socket_of(descriptor);
  added.waits_since_ = now;
  added.is_answered_ = true;
  added.is_open_ = true;
  ++open_;
  if (open_ > limits_.max_connections) end(added, EndOfConnection::crowded);
  return added;
}

void ConnectionTable::begin_reply(int descriptor) {
  if (Connection* const found = find(descriptor)) found->is_answered_ = false;
}

void ConnectionTable::end_reply(int descriptor, double now) {
  Connection* const found = find(descriptor);
  if (found == nullptr) return;
  found->is_answered_ = true;
  found->waits_since_ = now;
  received_bytes_ -= found->bytes_;
  found->bytes_ = 0;
}

void ConnectionTable::remove(int descriptor) {
  if (Connection* const found = find(descriptor)) forget(*found);
}

void ConnectionTable::sweep(double now) {
  for (auto each = connections_.begin(); each != connections_.end();) {
    Connection& connection = each->second;
    if (socket_of(connection.descriptor_) != connection.socket_) {
      forget(connection);
      each = connections_.erase(each);
      continue;
    }
    if (connection.is_open_ && connection.is_answered_ && now - connection.waits_since_ > limits_.request_seconds)
      end(connection, EndOfConnection::late);
    ++each;
  }
}

ConnectionTable::Connection* ConnectionTable::find(int descriptor) {
  const auto found = connections_.find(descriptor);
  return found == connections_.end() || !found->second.is_open_ ? nullptr : &found->second;
}

void ConnectionTable::end(Connection& connection, EndOfConnection why) {
  ++ended_[static_cast<std::size_t>(why)];
  if (socket_of(connection.descriptor_) == connection.socket_) {
    const linger none{.l_onoff = 1, .l_linger = 0};  // a client that still sends learns of the end at once
    setsockopt(connection.descriptor_, SOL_SOCKET, SO_LINGER, &none, sizeof none);
    shutdown(connection.descriptor_, SHUT_RDWR);
  }
  forget(connection);
}

void ConnectionTable::make_room() {
  Connection* longest = nullptr;
  for (auto& [descriptor, connection] : connections_) {
    if (!connection.is_open_ || !connection.is_answered_) continue;
    if (longest == nullptr || connection.waits_since_ < longest->waits_since_) longest = &connection;
  }
  if (longest != nullptr) end(*longest, EndOfConnection::crowded);
}

/// The entry stays until its socket has been closed: bytes that were on their way may still arrive.
void ConnectionTable::forget(Connection& connection) noexcept {
  if (!connection.is_open_) return;
  connection.is_open_ = false;
  --open_;
  received_bytes_ -= connection.bytes_;
  connection.bytes_ = 0;
}

}  // namespace lockstep
