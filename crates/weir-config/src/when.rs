//! When an operator wants a key: one sentence for each key whose purpose does not state it already. The manual's cards
//! show it below the purpose.

/// A line for each key: page of the section, key, sentence.
const WHEN: &str = include_str!("when.txt");

/// The lines of [`WHEN`], divided.
fn rows() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    WHEN.lines().filter_map(|line| {
        let (page, rest) = line.split_once(' ')?;
        let (key, sentence) = rest.split_once(' ')?;
        Some((page, key, sentence))
    })
}

/// When a key of a page is wanted.
pub(crate) fn when(page: &str, key: &str) -> Option<&'static str> {
    let found = rows().find(|row| (row.0, row.1) == (page, key));
    found.map(|row| row.2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog;

    /// Keys without a sentence; the number may only fall.
    const WITHOUT_MOST: usize = 67;

    #[test]
    fn sentences_are_for_existing_keys_and_each_key_has_one() {
        let keys = || {
            let keys = |section: &&'static crate::key::Section| {
                let page = section.page;
                section.built().map(move |key| (page, key.name))
            };
            catalog::PAGES.iter().flat_map(keys)
        };
        assert_eq!(rows().count(), WHEN.lines().count());
        for (page, key, sentence) in rows() {
            assert!(keys().any(|it| it == (page, key)), "{page}: {key}");
            assert!(sentence.ends_with('.'), "{sentence}");
            let same = rows().filter(|row| (row.0, row.1) == (page, key));
            assert_eq!(same.count(), 1, "{page}: {key}");
        }
        let without: Vec<_> = keys()
            .filter(|(page, key)| when(page, key).is_none())
            .collect();
        assert!(
            without.len() <= WITHOUT_MOST,
            "{} without: {without:?}",
            without.len()
        );
    }
}
