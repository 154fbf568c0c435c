#pragma once

#include <chrono>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/buffers_to_string.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/websocket.hpp>
#include <boost/json.hpp>

#include "tests/support/child.h"
#include "tests/support/temp_dir.h"

namespace ddprun::testing {

// A headless Chromium that a test controls by the DevTools protocol
// (https://chromedevtools.github.io/devtools-protocol). It has one page; commands block until their answer is there.
class Browser {
 public:
  static bool installed() { return std::system("command -v chromium > /dev/null") == 0; }

  Browser()
      : process_({"/bin/sh", "-c",
                  "exec chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run "
                  "--hide-scrollbars --remote-debugging-port=0 --user-data-dir=\"$0\" about:blank",
                  profile_.path().string()}) {
    constexpr std::chrono::seconds start_time(60);
    const std::string mark = "DevTools listening on ws://127.0.0.1:";
    process_.wait_until([&] { return address_after(mark).has_value(); }, "address of the browser", start_time);
    const auto address = *address_after(mark);
    const auto slash = address.find('/');
    boost::asio::connect(socket_.next_layer(),
                         boost::asio::ip::tcp::resolver(loop_).resolve("127.0.0.1", address.substr(0, slash)));
    socket_.handshake("127.0.0.1:" + address.substr(0, slash), address.substr(slash));
    const auto target = send("Target.createTarget", {{"url", "about:blank"}}).at("targetId").as_string();
    session_ = send("Target.attachToTarget", {{"targetId", target}, {"flatten", true}}).at("sessionId").as_string();
    send("Page.enable");
    send("Network.enable");
    send("Runtime.enable");
  }

  // Sends a command to the page and returns its result.
  boost::json::object send(const std::string& method, const boost::json::object& parameters = {}) {
    const int id = ++last_id_;
    boost::json::object command{{"id", id}, {"method", method}, {"params", parameters}};
    if (!session_.empty()) command["sessionId"] = session_;
    socket_.write(boost::asio::buffer(boost::json::serialize(command)));
    for (;;) {
      const auto message = receive();
      const auto* answered = message.if_contains("id");
      if (!answered || answered->to_number<int>() != id) continue;
      if (const auto* error = message.if_contains("error"))
        throw std::runtime_error(method + ": " + boost::json::serialize(*error));
      return message.at("result").as_object();
    }
  }

  void open(const std::string& url) { send("Page.navigate", {{"url", url}}); }
  // Returns the value of a JavaScript expression in the page, which may be a promise.
  boost::json::value evaluate(const std::string& expression) {
    const auto result =
        send("Runtime.evaluate", {{"expression", expression}, {"returnByValue", true}, {"awaitPromise", true}});
    if (const auto* failure = result.if_contains("exceptionDetails"))
      throw std::runtime_error(expression + ": " + boost::json::serialize(*failure));
    const auto* value = result.at("result").as_object().if_contains("value");
    return value ? *value : boost::json::value();
  }
  std::string text(const std::string& expression) { return std::string(evaluate(expression).as_string()); }
  // Waits until the expression is true in the page. An expression that fails, as before the page is there, is not true.
  void wait_for(const std::string& expression, std::chrono::seconds timeout = std::chrono::seconds(40)) {
    const auto guarded = "(() => { try { return " + expression + "; } catch (e) { return false; } })()";
    process_.wait_until([&] { return evaluate(guarded) == boost::json::value(true); }, expression, timeout);
  }
  void resize(int width, int height, bool dark) {
    send("Emulation.setDeviceMetricsOverride",
         {{"width", width}, {"height", height}, {"deviceScaleFactor", 1}, {"mobile", width < 600}});
    boost::json::array features{
        boost::json::object{{"name", "prefers-color-scheme"}, {"value", dark ? "dark" : "light"}}};
    send("Emulation.setEmulatedMedia", {{"features", features}});
  }
  // Presses a key as a user does: "Tab", "ArrowRight", "Enter".
  void press(const std::string& key) {
    static const std::map<std::string, int> codes{{"Tab", 9},         {"Enter", 13},     {"End", 35},
                                                  {"Home", 36},       {"ArrowLeft", 37}, {"ArrowUp", 38},
                                                  {"ArrowRight", 39}, {"ArrowDown", 40}};
    for (const auto* type : {"rawKeyDown", "keyUp"})
      send("Input.dispatchKeyEvent",
           {{"type", type}, {"key", key}, {"code", key}, {"windowsVirtualKeyCode", codes.at(key)}});
  }
  // Returns a PNG in base64.
  std::string screenshot() {
    return std::string(send("Page.captureScreenshot", {{"captureBeyondViewport", true}}).at("data").as_string());
  }

  // The URLs that the page has requested, and its reports: exceptions, and violations of its policy.
  const std::set<std::string>& requests() const { return requests_; }
  const std::string& complaints() const { return complaints_; }

 private:
  std::optional<std::string> address_after(const std::string& mark) const {
    const auto& text = process_.err();
    const auto begin = text.find(mark);
    const auto end = begin == std::string::npos ? begin : text.find('\n', begin);
    if (end == std::string::npos) return std::nullopt;
    return text.substr(begin + mark.size(), end - begin - mark.size());
  }

  boost::json::object receive() {
    boost::beast::flat_buffer buffer;
    socket_.read(buffer);
    auto message = boost::json::parse(boost::beast::buffers_to_string(buffer.data())).as_object();
    const auto* method = message.if_contains("method");
    if (!method) return message;
    if (method->as_string() == "Network.requestWillBeSent")
      requests_.emplace(message.at("params").at("request").at("url").as_string());
    if (method->as_string() == "Runtime.exceptionThrown" || method->as_string() == "Log.entryAdded")
      complaints_ += boost::json::serialize(message.at("params")) + "\n";
    return message;
  }

  TempDir profile_;
  Child process_;
  boost::asio::io_context loop_;
  boost::beast::websocket::stream<boost::asio::ip::tcp::socket> socket_{loop_};
  std::string session_;
  int last_id_ = 0;
  std::set<std::string> requests_;
  std::string complaints_;
};

}  // namespace ddprun::testing
