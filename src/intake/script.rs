//! The script for a website's page (`/static/leadonce.js`), as it travels to every visitor of it.

/// The script, for those who read it.
const SOURCE: &str = include_str!("leadonce.js");

/// Signs beside which a space says nothing. Not among them: `+` and `-` (`a + +b` is not `a ++b`), `/` (`//` begins a
/// comment) and `.` (`1 .x`).
const PUNCTUATION: &str = "=<>!&|?:;,*(){}[]";

/// The script without what only its readers need.
pub fn script() -> String {
    compact(SOURCE)
}

/// Leaves out lines of comment, indentation, and spaces between a sign and its neighbour. Lines stay lines and quoted texts stay
/// as they are, so that nothing changes its meaning.
fn compact(script: &str) -> String {
    let lines = script.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//"));
    lines.map(squeeze).collect::<Vec<_>>().join("\n")
}

fn squeeze(line: &str) -> String {
    let mut squeezed = String::with_capacity(line.len());
    let mut quote = None;
    let mut signs = line.chars().peekable();
    while let Some(sign) = signs.next() {
        match quote {
            Some(open) if open == sign => quote = None,
            None if matches!(sign, '\'' | '"' | '`') => quote = Some(sign),
            Some(_) | None => {}
        }
        let beside = |neighbour: Option<&char>| neighbour.is_some_and(|neighbour| PUNCTUATION.contains(*neighbour));
        let idle = sign == ' ' && quote.is_none();
        if !(idle && (beside(squeezed.chars().last().as_ref()) || beside(signs.peek()))) {
            squeezed.push(sign);
        }
    }
    squeezed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_indentation_stay_at_home_and_code_goes() {
        assert_eq!(compact("// why\n  const a = 'x // y';\n\n    b();\n"), "const a='x // y';\nb();");
        assert_eq!(
            compact("return [a, b] + +c || `( ${d} )` ? 'it, is' : { e: 1 };"),
            "return[a,b]+ +c||`( ${d} )`?'it, is':{e:1};"
        );
    }

    #[test]
    fn the_script_is_written_so_that_it_can_be_read_line_by_line() {
        for line in SOURCE.lines().map(str::trim).filter(|line| !line.starts_with("//")) {
            assert!(!line.contains("/*") && !line.contains(" //"), "a comment beside code: {line}");
            for quote in ['\'', '"', '`'] {
                assert_eq!(line.matches(quote).count() % 2, 0, "a text over several lines: {line}");
            }
        }
    }
}
