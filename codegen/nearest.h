// The nearest valid word to a mistyped one, for error messages.
#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

namespace tilewright {

/// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`.
inline int edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<int>> rows(a.size() + 1, std::vector<int>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) rows[i][0] = static_cast<int>(i);
  for (size_t j = 0; j <= b.size(); ++j) rows[0][j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      int replaced = rows[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
      rows[i][j] = std::min({replaced, rows[i - 1][j] + 1, rows[i][j - 1] + 1});
      bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) rows[i][j] = std::min(rows[i][j], rows[i - 2][j - 2] + 1);
    }
  }
  return rows[a.size()][b.size()];
}

/// Letters that two words begin with alike.
inline size_t common_prefix(std::string_view a, std::string_view b) {
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

/// The candidate most like `word`; of equals the one with the longest beginning in common, then the first.
/// Empty if none is within half of its length. `Words` is any range of things convertible to string_view.
template <typename Words>
std::string_view nearest(std::string_view word, const Words& candidates) {
  constexpr size_t longest = 64;  // bounds the work on absurd input
  std::string_view best;
  if (word.size() > longest) return best;
  int best_distance = 0;
  for (std::string_view candidate : candidates) {
    int distance = edit_distance(word, candidate);
    bool close = 2 * distance <= static_cast<int>(std::max(word.size(), candidate.size()));
    bool better = best.empty() || distance < best_distance ||
                  (distance == best_distance && common_prefix(word, candidate) > common_prefix(word, best));
    if (close && better) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace tilewright
