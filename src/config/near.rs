//! "Did you mean": the known word that a mistyped one is most likely to be.

/// The candidate nearest to `word`, if it is near enough to be a slip of the fingers.
pub(super) fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |text: &str| text.to_lowercase().replace('-', "_");
    let word = plain(word);
    candidates
        .into_iter()
        .map(|candidate| (distance(&word, &plain(candidate)), candidate))
        // One slip in a short word, two in a longer one, three in a long one.
        .filter(|(slips, candidate)| *slips <= (candidate.len() / 4).clamp(1, 3))
        .min_by_key(|(slips, _)| *slips)
        .map(|(_, candidate)| candidate)
}

/// How many letters must be put in, left out, exchanged or swapped with their neighbour to make `a` into `b`.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    // Rows of the table of distances between beginnings of `a` and `b`: the one before last, the last, the one being made.
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let exchanged = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = exchanged.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(before[j - 2] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_fingers_is_recognised() {
        let known = ["listen", "public_url", "max_body", "rate", "retry"];
        for (typed, meant) in [
            ("listn", "listen"),
            ("lisetn", "listen"),
            ("public-url", "public_url"),
            ("publicurl", "public_url"),
            ("Max_Body", "max_body"),
            ("rates", "rate"),
            ("rety", "retry"),
        ] {
            assert_eq!(nearest(typed, known), Some(meant), "{typed}");
        }
    }

    #[test]
    fn another_word_is_left_alone() {
        for typed in ["", "colour", "timeout", "url", "bind"] {
            assert_eq!(nearest(typed, ["listen", "public_url", "rate"]), None, "{typed}");
        }
    }
}
