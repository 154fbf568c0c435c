#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ddprun::dashboard {

// The page of a job, one HTML file (page.html) that loads nothing from elsewhere. Its style and script have the nonce.
// island is JSON that the page shows instead of asking its server; empty if there is none.
std::string page_with(std::string_view nonce, std::string_view island);

// The Content-Security-Policy of the page as a server sends it.
std::string content_policy(std::string_view nonce);

// The page of a job that has ended, to be opened as a file, from the messages that a client would have got
// (view_json.h).
std::string report_page(const std::vector<std::string>& messages);

}  // namespace ddprun::dashboard
