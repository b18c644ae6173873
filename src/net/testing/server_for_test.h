// A small HTTP server on this machine for tests: every request is answered by a function, byte by byte as it
// likes, so that it can behave like a hub, a broken proxy or an attacker. One connection per request. Test
// code only.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "net/http_headers.h"

namespace isthmus::testing {

struct Request {
  std::string target;
  HeaderMap headers;
  std::string header(const std::string& name) const {
    const auto it = headers.find(name);
    return it == headers.end() ? std::string() : it->second;
  }
};

class Connection {
 public:
  Connection(int fd, const std::atomic<bool>& stopping) : fd_(fd), stopping_(stopping) {}

  void send(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
  }
  /// Status line, headers ("A: b\r\n..."), Content-Length and body.
  void reply(int status, const std::string& headers, std::string_view body) const {
    send("HTTP/1.1 " + std::to_string(status) + " X\r\nConnection: close\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n" + headers + "\r\n");
    send(body);
  }
  void redirect(const std::string& location, const std::string& headers = "") const {
    reply(302, "Location: " + location + "\r\n" + headers, "moved");
  }
  /// Holds the connection open without a byte, until the server stops.
  void stall() const {
    while (!stopping_) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }

 private:
  int fd_;
  const std::atomic<bool>& stopping_;
};

class TestServer {
 public:
  using Handler = std::function<void(const Request&, const Connection&)>;

  explicit TestServer(Handler handler) : handler_(std::move(handler)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* raw = reinterpret_cast<sockaddr*>(&address);
    if (::bind(listener_, raw, size) != 0 || ::listen(listener_, 64) != 0 ||
        ::getsockname(listener_, raw, &size) != 0) {
      std::abort();
    }
    port_ = ntohs(address.sin_port);
    acceptor_ = std::thread([this] { accept_loop(); });
  }
  TestServer(const TestServer&) = delete;
  TestServer& operator=(const TestServer&) = delete;
  ~TestServer() {
    stopping_ = true;
    ::shutdown(listener_, SHUT_RDWR);
    acceptor_.join();
    for (std::thread& worker : workers_) worker.join();
    ::close(listener_);
  }

  std::string origin() const { return "http://127.0.0.1:" + std::to_string(port_); }
  std::string url(const std::string& target) const { return origin() + target; }
  uint16_t port() const { return port_; }
  std::vector<Request> requests() const {
    const std::lock_guard<std::mutex> hold(mutex_);
    return requests_;
  }

 private:
  void accept_loop() {
    while (!stopping_) {
      const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) continue;
      workers_.emplace_back([this, fd] {
        serve(fd);
        ::shutdown(fd, SHUT_WR);
        ::close(fd);
      });
    }
  }

  void serve(int fd) {
    std::string text;
    char buffer[4096];
    while (text.find("\r\n\r\n") == std::string::npos) {
      const ssize_t n = ::recv(fd, buffer, sizeof buffer, 0);
      if (n <= 0) return;
      text.append(buffer, static_cast<size_t>(n));
    }
    Request request;
    const size_t first = text.find(' ');
    request.target = text.substr(first + 1, text.find(' ', first + 1) - first - 1);
    for (size_t at = text.find("\r\n"); at + 4 < text.size();) {
      const size_t end = text.find("\r\n", at + 2);
      add_header_line(std::string_view(text).substr(at + 2, end - at - 2), request.headers);
      at = end;
    }
    {
      const std::lock_guard<std::mutex> hold(mutex_);
      requests_.push_back(request);
    }
    handler_(request, Connection(fd, stopping_));
  }

  Handler handler_;
  int listener_ = -1;
  uint16_t port_ = 0;
  std::atomic<bool> stopping_{false};
  std::thread acceptor_;
  std::list<std::thread> workers_;
  mutable std::mutex mutex_;
  std::vector<Request> requests_;
};

/// Answers one file as a careful server does: ranges, If-Range, entity tag.
inline void serve_file(const Request& request, const Connection& to, std::string_view content,
                       const std::string& etag) {
  const std::string common = "Accept-Ranges: bytes\r\nETag: " + etag + "\r\n";
  const std::string range = request.header("range");
  const std::string condition = request.header("if-range");
  if (range.starts_with("bytes=") && (condition.empty() || condition == etag)) {
    const auto from = parse_length(std::string_view(range).substr(6, range.size() - 7)).value_or(0);
    if (from >= content.size()) {
      return to.reply(416, common + "Content-Range: bytes */" + std::to_string(content.size()) + "\r\n", "");
    }
    return to.reply(206,
                    common + "Content-Range: bytes " + std::to_string(from) + "-" +
                        std::to_string(content.size() - 1) + "/" + std::to_string(content.size()) + "\r\n",
                    content.substr(static_cast<size_t>(from)));
  }
  to.reply(200, common, content);
}

}  // namespace isthmus::testing
