//! Readers of single values. Each says what a value must be; the key, the place and what was found instead are added by
//! [`super::reader`].

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use url::Url;

use super::near::nearest;
use super::tree::{Data, Node};
use super::units;

/// No wait in a configuration is longer than ten years; that keeps all arithmetic on times in range.
const LONGEST: Duration = Duration::from_secs(3_650 * 86_400);

type Read<T> = Result<T, String>;

/// A text that is not blank.
pub(super) fn text(node: &Node) -> Read<String> {
    match &node.data {
        Data::Text(text) if !text.trim().is_empty() => Ok(text.clone()),
        Data::Text(_) => Err("must not be empty".to_owned()),
        _ => Err("must be a text in quotes".to_owned()),
    }
}

/// A name of a source or destination.
pub(super) fn name<T: TryFrom<String, Error = crate::operation::id::Invalid>>(node: &Node) -> Read<T> {
    T::try_from(text(node)?).map_err(|invalid| format!("is not a name: {invalid}"))
}

/// One of these words.
pub(super) fn one_of<'a>(words: &'a [&'a str]) -> impl Fn(&Node) -> Read<String> + 'a {
    move |node| {
        let text = text(node)?;
        if words.contains(&text.as_str()) {
            return Ok(text);
        }
        let hint = nearest(&text, words.iter().copied());
        let hint = hint.map_or_else(String::new, |word| format!(" (did you mean \"{word}\"?)"));
        Err(format!("must be one of {}{hint}", words.join(", ")))
    }
}

/// `true` or `false`.
pub(super) fn flag(node: &Node) -> Read<bool> {
    match &node.data {
        Data::Flag(flag) => Ok(*flag),
        Data::Text(text) if node.is_loose() && text == "true" => Ok(true),
        Data::Text(text) if node.is_loose() && text == "false" => Ok(false),
        _ => Err("must be true or false".to_owned()),
    }
}

/// A whole number within these bounds.
pub(super) fn whole(range: RangeInclusive<u32>) -> impl Fn(&Node) -> Read<u32> {
    move |node| {
        let number = match &node.data {
            Data::Whole(number) => u32::try_from(*number).ok(),
            Data::Text(text) if node.is_loose() => text.parse().ok(),
            _ => None,
        };
        number.filter(|number| range.contains(number)).ok_or_else(|| {
            let (least, most) = (range.start(), range.end());
            match *most {
                u32::MAX => format!("must be a whole number of at least {least}"),
                most => format!("must be a whole number from {least} to {most}"),
            }
        })
    }
}

/// A number, whole or not, within bounds that `words` tells.
pub(super) fn number(words: &'static str, within: impl Fn(f64) -> bool) -> impl Fn(&Node) -> Read<f64> {
    move |node| {
        let number = match &node.data {
            Data::Whole(number) => number.to_string().parse().ok(),
            Data::Number(number) => Some(*number),
            Data::Text(text) if node.is_loose() => text.parse().ok(),
            _ => None,
        };
        number.filter(|number: &f64| number.is_finite() && within(*number)).ok_or_else(|| format!("must be {words}"))
    }
}

/// A duration with a unit, longer than nothing.
pub(super) fn duration(node: &Node) -> Read<Duration> {
    let found = match &node.data {
        Data::Text(text) => units::duration(text),
        _ => None,
    };
    let found =
        found.ok_or("must be a duration: a whole number and one of the units ms, s, m, h, d, such as \"15s\"")?;
    if found.is_zero() {
        return Err("must be longer than nothing".to_owned());
    }
    if found > LONGEST {
        return Err(format!("must be at most {}", units::show_duration(LONGEST)));
    }
    Ok(found)
}

/// A duration that may be zero.
pub(super) fn duration_or_zero(node: &Node) -> Read<Duration> {
    match &node.data {
        Data::Text(text) if units::duration(text) == Some(Duration::ZERO) => Ok(Duration::ZERO),
        _ => duration(node),
    }
}

/// A duration within these bounds.
pub(super) fn duration_within(range: RangeInclusive<Duration>) -> impl Fn(&Node) -> Read<Duration> {
    move |node| {
        let found = duration_or_zero(node)?;
        let (least, most) = (*range.start(), *range.end());
        if range.contains(&found) {
            return Ok(found);
        }
        if found < least {
            return Err(format!("must be at least {}", units::show_duration(least)));
        }
        Err(format!("must be at most {}", units::show_duration(most)))
    }
}

/// A size with a unit, in bytes, within these bounds.
pub(super) fn size(range: RangeInclusive<u64>) -> impl Fn(&Node) -> Read<usize> {
    move |node| {
        let found = match &node.data {
            Data::Text(text) => units::size(text),
            _ => None,
        };
        let found = found.ok_or("must be a size: a whole number and one of the units KiB, MiB, B, such as \"1MiB\"")?;
        if !range.contains(&found) {
            let (least, most) = (units::show_size(*range.start()), units::show_size(*range.end()));
            return Err(format!("must be from {least} to {most}"));
        }
        usize::try_from(found).map_err(|_| "is more than this machine can address".to_owned())
    }
}

/// An address to listen on.
pub(super) fn listen(node: &Node) -> Read<SocketAddr> {
    let must = "must be an IP address and a port, such as \"127.0.0.1:8080\" or \"[::]:8080\"";
    text(node)?.parse().map_err(|_| must.to_owned())
}

/// An `http` or `https` address, kept as it was written.
pub(super) fn web_address(node: &Node) -> Read<String> {
    let text = text(node)?;
    let url = Url::parse(&text).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    match url {
        Some(_) => Ok(text),
        None => Err("must be an address that begins with https:// (or http://)".to_owned()),
    }
}

/// The address under which people and senders reach this gateway; without a slash at its end.
pub(super) fn public_url(node: &Node) -> Read<String> {
    let address = web_address(node)?;
    let bare = |url: &Url| url.query().is_none() && url.fragment().is_none() && url.username().is_empty();
    match Url::parse(&address).ok().filter(bare) {
        Some(_) => Ok(address.trim_end_matches('/').to_owned()),
        None => Err("must be an address without user, ? or #".to_owned()),
    }
}

/// An origin as browsers send it: scheme, host and port, nothing after it.
///
/// It is compared byte for byte with the browser's `Origin`, so a spelling that no browser sends is refused here rather than
/// never matched there.
pub(super) fn origin(node: &Node) -> Read<String> {
    let text = text(node)?;
    let must = "must be an origin as browsers send it, scheme and host without a path, such as \"https://example.com\"";
    let url = Url::parse(&text).map_err(|_| must.to_owned())?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(must.to_owned());
    }
    let sent = url.origin().ascii_serialization();
    if sent == text {
        return Ok(text);
    }
    Err(format!("{must} (here \"{sent}\")"))
}

/// Address of a database. An unknown scheme is refused: it must never become the name of a new file.
pub(super) fn store_url(node: &Node) -> Read<String> {
    let text = text(node)?;
    let path = ["sqlite://", "postgres://", "postgresql://"].iter().find_map(|scheme| text.strip_prefix(scheme));
    match path {
        Some(path) if !path.is_empty() => Ok(text),
        Some(_) => Err("must name a file or a server after ://".to_owned()),
        None => Err("must begin with sqlite:// or postgres://".to_owned()),
    }
}

/// A Standard Webhooks secret, kept as it was written.
pub(super) fn webhook_secret(node: &Node) -> Read<String> {
    use base64::Engine as _;
    let text = text(node)?;
    let key = text.strip_prefix("whsec_").and_then(|key| base64::engine::general_purpose::STANDARD.decode(key).ok());
    match key {
        Some(key) if (24..=64).contains(&key.len()) => Ok(text),
        _ => {
            Err("must be whsec_ and 24 to 64 bytes in base64 (make one: echo whsec_$(openssl rand -base64 32))"
                .to_owned())
        }
    }
}

/// A country's two letters.
pub(super) fn region(node: &Node) -> Read<String> {
    let text = text(node)?;
    if text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_uppercase()) {
        return Ok(text);
    }
    Err("must be the two capital letters of a country, such as \"RU\"".to_owned())
}
