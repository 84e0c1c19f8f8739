//! Finds the known word that is most similar to an unknown word, for "did you mean".

/// Returns the word in `known` that is most similar to `word`, if the edit distance is at most a third of the length of
/// `word`, or 1, and less than the length of the known word.
///
/// Case and the difference between `-` and `_` are ignored. Of several equally similar words, the first is returned.
pub(crate) fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    // Computing the distance takes quadratic time, and words longer than this are not typos.
    const MAX_LENGTH: usize = 64;
    if word.len() > MAX_LENGTH {
        return None;
    }
    let folded = fold_case(word);
    let max_distance = (folded.chars().count() / 3).max(1);
    known
        .into_iter()
        .filter(|candidate| candidate.len() <= MAX_LENGTH)
        .map(|candidate| {
            (
                strsim::osa_distance(&folded, &fold_case(candidate)),
                candidate,
            )
        })
        .filter(|(distance, candidate)| {
            *distance <= max_distance && *distance < candidate.chars().count()
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Returns the word in lower case, with `_` instead of `-`.
fn fold_case(word: &str) -> String {
    word.chars()
        .map(|c| {
            if c == '-' {
                '_'
            } else {
                c.to_ascii_lowercase()
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the optimal string alignment distance. The computation keeps only the last two rows.
    fn distance(a: &[char], b: &[char]) -> usize {
        let mut second_last_row: Vec<usize> = Vec::new();
        let mut last_row: Vec<usize> = (0..=b.len()).collect();
        for (i, char_a) in a.iter().enumerate() {
            let mut row = vec![i + 1];
            for (j, char_b) in b.iter().enumerate() {
                let mut best = (last_row[j] + usize::from(char_a != char_b))
                    .min(last_row[j + 1] + 1)
                    .min(row[j] + 1);
                if i > 0 && j > 0 && *char_a == b[j - 1] && a[i - 1] == *char_b {
                    best = best.min(second_last_row[j - 1] + 1);
                }
                row.push(best);
            }
            second_last_row = std::mem::replace(&mut last_row, row);
        }
        last_row[b.len()]
    }

    proptest! {
        #[test]
        fn distances_are_optimal_string_alignments(a in "[a-d_é]{0,12}", b in "[a-d_é]{0,12}") {
            let chars = |text: &str| text.chars().collect::<Vec<_>>();
            prop_assert_eq!(strsim::osa_distance(&a, &b), distance(&chars(&a), &chars(&b)));
        }
    }

    #[test]
    fn misspelled_words_are_found() {
        let known = ["interfaces", "vip_interface", "admin", "max_flows"];
        assert_eq!(nearest("interface", known), Some("interfaces"));
        assert_eq!(nearest("max-flows", known), Some("max_flows"));
        assert_eq!(nearest("amdin", known), Some("admin"));
        assert_eq!(nearest("MAX_FLOW", known), Some("max_flows"));
    }

    #[test]
    fn unrelated_words_are_not_suggested() {
        let known = ["rr", "wrr", "lc", "wlc"];
        assert_eq!(nearest("fastest", known), None);
        assert_eq!(nearest("wllc", known), Some("wlc"));
        assert_eq!(nearest(&"w".repeat(100), known), None);
        assert_eq!(nearest("zz", known), None);
    }
}
