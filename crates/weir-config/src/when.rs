//! Describes when an operator needs a key, for each key whose purpose does not make this clear.
//!
//! The manual's cards show the sentence below the purpose.

/// One line for each key: page of the section, key, sentence.
const WHEN: &str = include_str!("when.txt");

/// Returns the fields of each line of [`WHEN`]: page, key, sentence.
fn rows() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    WHEN.lines().filter_map(|line| {
        let (page, key_and_sentence) = line.split_once(' ')?;
        let (key, sentence) = key_and_sentence.split_once(' ')?;
        Some((page, key, sentence))
    })
}

/// Returns the sentence for a key of a page.
pub(crate) fn when(page: &str, key: &str) -> Option<&'static str> {
    let mut rows = rows();
    rows.find(|row| (row.0, row.1) == (page, key))
        .map(|row| row.2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog;
    use crate::catalog::is_condition;

    /// Maximum number of keys without a sentence, excluding route conditions. Do not raise it.
    const MAX_KEYS_WITHOUT_SENTENCE: usize = 55;

    #[test]
    fn each_key_has_at_most_one_sentence_and_every_sentence_has_a_key() {
        let keys = || {
            let keys = |section: &&'static crate::key::Section| {
                let page = section.page;
                section.implemented_keys().map(move |key| (page, key.name))
            };
            catalog::PAGES.iter().flat_map(keys)
        };
        assert_eq!(rows().count(), WHEN.lines().count());
        for (page, key, sentence) in rows() {
            assert!(keys().any(|it| it == (page, key)), "{page}: {key}");
            assert!(sentence.ends_with('.'), "{sentence}");
            let rows_of_key = rows().filter(|row| (row.0, row.1) == (page, key));
            assert_eq!(rows_of_key.count(), 1, "{page}: {key}");
        }
        let keys_without_sentence: Vec<_> = keys()
            .filter(|(page, key)| when(page, key).is_none() && !is_condition(page, key))
            .collect();
        assert!(
            keys_without_sentence.len() <= MAX_KEYS_WITHOUT_SENTENCE,
            "{} keys without a sentence: {keys_without_sentence:?}",
            keys_without_sentence.len()
        );
    }
}
