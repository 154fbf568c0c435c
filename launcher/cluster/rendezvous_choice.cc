#include "launcher/cluster/rendezvous_choice.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <vector>

#include "common/error.h"
#include "common/host_port.h"
#include "rendezvous/membership/session_protocol.h"

namespace ddprun {
namespace {

constexpr std::uint16_t default_port = 29400;
constexpr std::uint16_t etcd_port = 2379;

using Pairs = std::map<std::string, std::string>;

// The keys of torchrun's back ends, and those of authentication. Keys that concern polling are accepted and unused.
const std::vector<std::string>& known_conf_keys() {
  static const std::vector<std::string> keys = {"join_timeout",
                                                "last_call_timeout",
                                                "close_timeout",
                                                "heartbeat_timeout",
                                                "keep_alive_interval",
                                                "keep_alive_max_attempt",
                                                "timeout",
                                                "read_timeout",
                                                "store_timeout",
                                                "store_type",
                                                "is_host",
                                                "rank",
                                                "protocol",
                                                "etcd_prefix",
                                                "cert",
                                                "key",
                                                "cacert",
                                                "ssl_cert",
                                                "ssl_cert_key",
                                                "ca_cert",
                                                "token_file",
                                                "tls",
                                                "auth",
                                                "plain_clients",
                                                "tie_break"};
  return keys;
}

Pairs parse_conf(std::string_view text) {
  Pairs pairs;
  while (!text.empty()) {
    const auto comma = text.find(',');
    const std::string item(text.substr(0, comma));
    text.remove_prefix(comma == std::string_view::npos ? text.size() : comma + 1);
    const auto equals = item.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == item.size())
      throw make_error(Errc::usage, "--rdzv_conf: '{}': expected KEY=VALUE", item);
    const auto key = item.substr(0, equals);
    const auto& known = known_conf_keys();
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      const auto near = nearest(key, known);
      throw make_error(Errc::usage, "--rdzv_conf: unknown key {}{}", key,
                       near ? fmt::format("; did you mean {}?", *near) : "");
    }
    pairs[key] = item.substr(equals + 1);
  }
  return pairs;
}

int parse_int(const std::string& key, const std::string& text, int min, int max) {
  int value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc{} || end != text.data() + text.size() || value < min || value > max)
    throw make_error(Errc::usage, "--rdzv_conf: {} = {}: expected a whole number from {} to {}", key, text, min, max);
  return value;
}

// The bounds of the session protocol.
int max_of(const std::string& key) {
  if (key == "keep_alive_interval") return static_cast<int>(SessionLimits::keep_alive_milliseconds / 1000);
  if (key == "keep_alive_max_attempt") return SessionLimits::keep_alive_attempts;
  return static_cast<int>(SessionLimits::milliseconds / 1000);
}

bool parse_is_host(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  static const std::set<std::string> yes = {"1", "true", "t", "yes", "y"};
  static const std::set<std::string> no = {"0", "false", "f", "no", "n"};
  if (yes.contains(text)) return true;
  if (no.contains(text)) return false;
  throw make_error(Errc::usage, "--rdzv_conf: is_host = {}: expected true or false", text);
}

// Applies the keys that only etcd has. Returns true if key is one of them.
bool apply_etcd_conf(const std::string& key, const std::string& value, RendezvousChoice& choice) {
  static const std::set<std::string> certificates = {"cert", "key", "cacert", "ssl_cert", "ssl_cert_key", "ca_cert"};
  if (key != "protocol" && key != "etcd_prefix" && !certificates.contains(key)) return false;
  if (choice.backend != RendezvousChoice::Backend::etcd)
    throw make_error(Errc::usage, "--rdzv_conf: {} is a setting of --rdzv_backend=etcd", key);
  if (certificates.contains(key) || (key == "protocol" && value == "https"))
    throw make_error(Errc::usage,
                     "--rdzv_conf: {} = {}: etcd over TLS is not supported; run a proxy for TLS on this host, such as "
                     "'etcd grpc-proxy', and give its address",
                     key, value);
  if (key == "protocol" && value != "http")
    throw make_error(Errc::usage, "--rdzv_conf: protocol = {}: expected http", value);
  if (key == "etcd_prefix") {
    if (!value.starts_with('/'))
      throw make_error(Errc::usage, "--rdzv_conf: etcd_prefix = {}: expected a path that begins with /", value);
    choice.etcd_prefix = value;
  }
  return true;
}

bool parse_on(const std::string& key, const std::string& text) {
  if (text != "on" && text != "off")
    throw make_error(Errc::usage, "--rdzv_conf: {} = {}: expected on or off", key, text);
  return text == "on";
}

bool parse_plain_clients(const std::string& text) {
  if (text != "job" && text != "user")
    throw make_error(Errc::usage, "--rdzv_conf: plain_clients = {}: expected job or user", text);
  return text == "job";
}

bool parse_tie_break(const std::string& text) {
  if (text != "stop" && text != "survive")
    throw make_error(Errc::usage, "--rdzv_conf: tie_break = {}: expected stop or survive", text);
  return text == "survive";
}

void check_store_type(const std::string& value) {
  if (value == "file")
    throw make_error(Errc::usage,
                     "--rdzv_conf: store_type = file: a file cannot report that a node is gone; name one of the hosts "
                     "as the server with --rdzv_endpoint=HOST:PORT");
  if (value != "tcp") throw make_error(Errc::usage, "--rdzv_conf: store_type = {}: expected tcp", value);
}

void apply_conf(const Pairs& conf, RendezvousChoice& choice) {
  for (const auto& [key, value] : conf) {
    if (apply_etcd_conf(key, value, choice)) continue;
    if (key == "is_host") {
      choice.is_host = parse_is_host(value);
    } else if (key == "token_file") {
      choice.token_file = value;
    } else if (key == "tls") {
      choice.encrypt = parse_on(key, value);
    } else if (key == "auth") {
      choice.authenticate = parse_on(key, value);
    } else if (key == "plain_clients") {
      choice.clients_of_job = parse_plain_clients(value);
    } else if (key == "tie_break") {
      choice.survives_tie = parse_tie_break(value);
    } else if (key == "store_type") {
      check_store_type(value);
    } else if (key == "rank") {
      choice.node_rank = parse_int(key, value, 0, SessionLimits::nodes - 1);
    } else {
      choice.seconds[key] = parse_int(key, value, 1, max_of(key));
    }
  }
  const auto set = [&](const char* key, std::chrono::milliseconds& target) {
    if (const auto found = choice.seconds.find(key); found != choice.seconds.end())
      target = std::chrono::seconds(found->second);
  };
  set("last_call_timeout", choice.policy.last_call);
  set("join_timeout", choice.policy.join_timeout);
  set("store_timeout", choice.store_timeout);
  set("keep_alive_interval", choice.policy.keep_alive_interval);
  if (const auto found = choice.seconds.find("keep_alive_max_attempt"); found != choice.seconds.end())
    choice.policy.keep_alive_max_attempt = found->second;
  if (choice.backend == RendezvousChoice::Backend::static_) set("timeout", choice.policy.join_timeout);
}

RendezvousChoice::Backend choose_backend(const LaunchSettings& settings, bool node_rank_given) {
  using Backend = RendezvousChoice::Backend;
  if (settings.is_set("rdzv_backend")) {
    const auto& name = settings.options().rdzv_backend;
    return name == "static" ? Backend::static_ : name == "etcd" ? Backend::etcd : Backend::c10d;
  }
  const bool address_given = settings.is_set("master_addr") || settings.is_set("rdzv_endpoint");
  return node_rank_given && address_given ? Backend::static_ : Backend::c10d;
}

std::uint16_t parse_port(const std::string& text) {
  int port = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (status != std::errc{} || end != text.data() + text.size() || port < 1 || port > 65535)
    throw make_error(Errc::usage, "MASTER_PORT = {}: expected a port from 1 to 65535", text);
  return static_cast<std::uint16_t>(port);
}

// Returns the endpoint from, in this order: --rdzv_endpoint, the master options, MASTER_ADDR and MASTER_PORT in the
// environment, the cluster.
std::optional<HostPort> named_endpoint(const LaunchSettings& settings, const Environment& environment,
                                       RendezvousChoice::Backend backend) {
  const auto& o = settings.options();
  const auto master_port = static_cast<std::uint16_t>(o.master_port);
  if (settings.is_set("rdzv_endpoint") && !o.rdzv_endpoint.empty()) {
    auto endpoint = parse_host_port(o.rdzv_endpoint);
    if (endpoint.host.empty()) endpoint.host = "127.0.0.1";
    const bool is_static = backend == RendezvousChoice::Backend::static_;
    if (!endpoint.port) endpoint.port = is_static ? master_port : default_port;
    return endpoint;
  }
  if (settings.is_set("master_addr") || settings.is_set("master_port")) return HostPort{o.master_addr, master_port};
  if (const auto host = environment.get("MASTER_ADDR"); host && !host->empty()) {
    const auto port = environment.get("MASTER_PORT");
    return HostPort{*host, port && !port->empty() ? parse_port(*port) : master_port};
  }
  if (settings.origin("rdzv_endpoint") == Origin::cluster) return parse_host_port(o.rdzv_endpoint);
  if (backend == RendezvousChoice::Backend::static_) return HostPort{o.master_addr, master_port};
  return std::nullopt;
}

// Takes one address or several, "h1:2379,h2:2379"; the default is an etcd on this host. An endpoint from the cluster is
// one for agents, not an etcd, and is ignored.
void choose_etcd_endpoints(const LaunchSettings& settings, RendezvousChoice& choice) {
  const bool named = settings.origin("rdzv_endpoint") != Origin::cluster;
  std::string_view rest = named ? std::string_view(settings.options().rdzv_endpoint) : std::string_view();
  std::vector<HostPort> endpoints;
  while (!rest.empty()) {
    const auto comma = rest.find(',');
    auto endpoint = parse_host_port(rest.substr(0, comma));
    rest.remove_prefix(comma == std::string_view::npos ? rest.size() : comma + 1);
    if (endpoint.host.empty()) endpoint.host = "127.0.0.1";
    endpoint.port = endpoint.port_or(etcd_port);
    endpoints.push_back(std::move(endpoint));
  }
  if (endpoints.empty()) endpoints.push_back({"127.0.0.1", etcd_port});
  choice.host = endpoints.front().host;
  choice.port = *endpoints.front().port;
  choice.more_endpoints.assign(endpoints.begin() + 1, endpoints.end());
}

std::string waiting_notice(const NodeCount& nodes) {
  return fmt::format(
      "waiting at 127.0.0.1:{} for {} nodes, all on this machine; for nodes on other machines start each with "
      "--rdzv_endpoint=HOST:PORT",
      default_port,
      nodes.min == nodes.max ? fmt::format("{}", nodes.max) : fmt::format("{} to {}", nodes.min, nodes.max));
}

// With it torchrun's agents do not exchange ranks, and an agent that does would wait for them until its timeout.
void refuse_identical_workers(const Environment& environment) {
  if (environment.get("TORCH_ELASTIC_WORKER_IDENTICAL") == "1")
    throw make_error(Errc::usage,
                     "TORCH_ELASTIC_WORKER_IDENTICAL = 1: the agents of a static job exchange their ranks through the "
                     "store, and with this variable torchrun's agents do not; unset it on every node");
}

[[noreturn]] void refuse_spares_of_one_node(int spares) {
  throw make_error(Errc::usage,
                   "--spares = {}: a job of one node needs --rdzv_endpoint=HOST:PORT, where its spares find it",
                   spares);
}

std::string single_pod_notice() {
  return "this pod of a Kubernetes indexed Job is a separate job; for one job of all pods, set the variables that "
         "scripts/k8s/train.yaml sets; if one job per pod is intended, confirm it with --nnodes=1";
}

std::string static_notice(const NodeCount& nodes) {
  return fmt::format(
      "--nnodes = {0}:{1} with the static rendezvous: as in torchrun, the job waits for all {1} nodes; for {0} to {1} "
      "nodes add --rdzv_backend=c10d",
      nodes.min, nodes.max);
}

}  // namespace

std::string name_of(RendezvousChoice::Backend backend) {
  switch (backend) {
    case RendezvousChoice::Backend::c10d:
      return "c10d";
    case RendezvousChoice::Backend::static_:
      return "static";
    case RendezvousChoice::Backend::etcd:
      return "etcd";
  }
  return "";
}

RendezvousChoice choose_rendezvous(const LaunchSettings& settings, const Environment& environment) {
  const auto& o = settings.options();
  const auto nodes = parse_node_count(o.nnodes);
  const auto conf = parse_conf(o.rdzv_conf);
  const bool rank_given = settings.is_set("node_rank") || conf.contains("rank");

  RendezvousChoice choice;
  choice.policy = {.run_id = o.rdzv_id,
                   .min_nodes = nodes.min,
                   .max_nodes = nodes.max,
                   .max_restarts = o.max_restarts,
                   .spares = o.spares};
  if (settings.origin("node_rank") != Origin::fallback) choice.node_rank = o.node_rank;
  if (!o.standalone) choice.backend = choose_backend(settings, rank_given);
  apply_conf(conf, choice);
  if (choice.backend == RendezvousChoice::Backend::etcd) {
    choose_etcd_endpoints(settings, choice);
    return choice;
  }
  const auto endpoint = o.standalone ? std::nullopt : named_endpoint(settings, environment, choice.backend);
  const bool endpoint_by_option =
      (settings.is_set("rdzv_endpoint") && !o.rdzv_endpoint.empty()) || settings.is_set("master_port");
  if (o.standalone || (nodes.max == 1 && !endpoint_by_option)) {
    choice.standalone = true;
    choice.backend = RendezvousChoice::Backend::c10d;
    if (!o.standalone && o.spares > 0) refuse_spares_of_one_node(o.spares);
    choice.policy.min_nodes = choice.policy.max_nodes = 1;
    choice.policy.spares = 0;
    choice.node_rank.reset();
    if (!o.standalone && !settings.is_set("nnodes") && environment.get("JOB_COMPLETION_INDEX"))
      choice.notice = single_pod_notice();
    return choice;
  }
  if (choice.backend == RendezvousChoice::Backend::static_) {
    if (!choice.node_rank) choice.node_rank = 0;
    if (*choice.node_rank >= nodes.max)
      throw make_error(Errc::usage, "--node_rank = {}: expected less than --nnodes = {}", *choice.node_rank, nodes.max);
    refuse_identical_workers(environment);
    choice.policy.min_nodes = nodes.max;  // static is not elastic
    if (nodes.min < nodes.max) choice.notice = static_notice(nodes);
  }
  // The cluster names the first node, so that no name has to be looked up.
  const bool from_cluster =
      settings.origin("rdzv_endpoint") == Origin::cluster && settings.origin("node_rank") == Origin::cluster;
  if (from_cluster && !choice.is_host && endpoint->host == parse_host_port(o.rdzv_endpoint).host)
    choice.is_host = o.node_rank == 0;
  choice.host = endpoint ? endpoint->host : "127.0.0.1";
  choice.port = endpoint ? endpoint->port_or(default_port) : default_port;
  if (!endpoint) choice.notice = waiting_notice(nodes);
  return choice;
}

BackendOptions backend_options(const RendezvousChoice& choice) {
  return {.backend = name_of(choice.backend),
          .standalone = choice.standalone,
          .host = choice.host,
          .port = choice.port,
          .is_host = choice.is_host,
          .node_rank = choice.node_rank,
          .store_timeout = choice.store_timeout,
          .survives_tie = choice.survives_tie,
          .more_endpoints = choice.more_endpoints,
          .etcd_prefix = choice.etcd_prefix};
}

}  // namespace ddprun
