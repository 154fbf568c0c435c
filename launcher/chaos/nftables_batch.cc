#include "launcher/chaos/nftables_batch.h"

#include <arpa/inet.h>
#include <cstring>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <sys/socket.h>

namespace ddprun {
namespace {

// Runs before the packet filters and the connection tracking of others (as the priority "raw" of nft(8)).
constexpr std::uint32_t priority = static_cast<std::uint32_t>(-300);

std::string_view bytes_of(const void* object, std::size_t size) {
  return {static_cast<const char*>(object), size};
}

void pad(std::string& bytes) {
  bytes.append(NLMSG_ALIGN(bytes.size()) - bytes.size(), '\0');
}

// An attribute of a message: its length and type, and a value, which may be a list of attributes.
std::string attribute(int type, std::string_view value) {
  nlattr head{.nla_len = static_cast<std::uint16_t>(NLA_HDRLEN + value.size()),
              .nla_type = static_cast<std::uint16_t>(type)};
  std::string bytes(bytes_of(&head, sizeof head));
  bytes += value;
  pad(bytes);
  return bytes;
}

std::string nested(int type, std::string_view attributes) {
  return attribute(type | NLA_F_NESTED, attributes);
}

std::string text(int type, std::string_view value) {
  return attribute(type, std::string(value) + '\0');
}

std::string number(int type, std::uint32_t value) {
  const std::uint32_t big_endian = htonl(value);
  return attribute(type, bytes_of(&big_endian, sizeof big_endian));
}

std::string expression(std::string_view name, std::string_view attributes) {
  return nested(NFTA_LIST_ELEM, text(NFTA_EXPR_NAME, name) + nested(NFTA_EXPR_DATA, attributes));
}

// Loads the type of the packet's interface, compares it, and accepts the packet if it is equal.
std::string accept_if(const NftablesBatch::Passing& packets) {
  const auto type = bytes_of(&packets.interface_type, sizeof packets.interface_type);
  const auto verdict = nested(NFTA_DATA_VERDICT, number(NFTA_VERDICT_CODE, NF_ACCEPT));
  return expression("meta", number(NFTA_META_DREG, NFT_REG_1) + number(NFTA_META_KEY, packets.meta_key)) +
         expression("cmp", number(NFTA_CMP_SREG, NFT_REG_1) + number(NFTA_CMP_OP, NFT_CMP_EQ) +
                               nested(NFTA_CMP_DATA, attribute(NFTA_DATA_VALUE, type))) +
         expression("immediate", number(NFTA_IMMEDIATE_DREG, NFT_REG_VERDICT) + nested(NFTA_IMMEDIATE_DATA, verdict));
}

std::string message(int type, int flags, std::uint32_t sequence, const nfgenmsg& family, std::string_view attributes) {
  nlmsghdr head{};
  head.nlmsg_len = static_cast<std::uint32_t>(NLMSG_HDRLEN + sizeof family + attributes.size());
  head.nlmsg_type = static_cast<std::uint16_t>(type);
  head.nlmsg_flags = static_cast<std::uint16_t>(NLM_F_REQUEST | flags);
  head.nlmsg_seq = sequence;
  std::string bytes(bytes_of(&head, sizeof head));
  bytes += bytes_of(&family, sizeof family);
  bytes += attributes;
  pad(bytes);
  return bytes;
}

std::string limit_of_batch(int type, std::uint32_t sequence) {
  return message(type, 0, sequence,
                 {.nfgen_family = AF_UNSPEC, .version = NFNETLINK_V0, .res_id = htons(NFNL_SUBSYS_NFTABLES)}, {});
}

// The kernel acknowledges each change, or answers with an error.
std::string change(int type, std::uint32_t sequence, std::string_view attributes, int flags = 0) {
  return message((NFNL_SUBSYS_NFTABLES << 8) | type, NLM_F_CREATE | NLM_F_ACK | flags, sequence,
                 {.nfgen_family = NFPROTO_INET, .version = NFNETLINK_V0, .res_id = 0}, attributes);
}

}  // namespace

NftablesBatch::NftablesBatch() : bytes_(limit_of_batch(NFNL_MSG_BATCH_BEGIN, 0)) {}

void NftablesBatch::add_owned_table(const std::string& name) {
  table_ = name;
  bytes_ += change(NFT_MSG_NEWTABLE, ++sequence_,
                   text(NFTA_TABLE_NAME, table_) + number(NFTA_TABLE_FLAGS, NFT_TABLE_F_OWNER), NLM_F_EXCL);
}

void NftablesBatch::add_dropping_chain(std::string_view name, std::uint32_t hook) {
  const auto place = number(NFTA_HOOK_HOOKNUM, hook) + number(NFTA_HOOK_PRIORITY, priority);
  bytes_ += change(NFT_MSG_NEWCHAIN, ++sequence_,
                   text(NFTA_CHAIN_TABLE, table_) + text(NFTA_CHAIN_NAME, name) + nested(NFTA_CHAIN_HOOK, place) +
                       number(NFTA_CHAIN_POLICY, NF_DROP) + text(NFTA_CHAIN_TYPE, "filter"));
}

void NftablesBatch::add_accepting_rule(const Passing& packets) {
  bytes_ += change(NFT_MSG_NEWRULE, ++sequence_,
                   text(NFTA_RULE_TABLE, table_) + text(NFTA_RULE_CHAIN, packets.chain) +
                       nested(NFTA_RULE_EXPRESSIONS, accept_if(packets)),
                   NLM_F_APPEND);
}

std::string NftablesBatch::finish() {
  return bytes_ + limit_of_batch(NFNL_MSG_BATCH_END, sequence_ + 1);
}

}  // namespace ddprun
