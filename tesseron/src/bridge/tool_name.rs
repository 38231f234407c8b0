//! The names by which the agent calls the actions of apps.
//!
//! An action is listed as the tool `<app>__<action>`. MCP allows 1 to 128 letters, digits, `_`, `-` and `.` in the name of a tool
//! (2025-11-25, "Tools", section "Tool Names"), while the name of an action may be any text. If the name of the tool is not allowed, the
//! tool is listed under an alias:
//!
//! ```text
//!   ledger __ Eintrag_l_schen -- 2ee1be7638c261b1
//!   the app   words of the       digest of the
//!             action's name      action's name
//! ```
//!
//! An alias depends only on the app and the action. A name that has the form of an alias is also replaced by an alias. The aliases of two
//! apps differ before the last `__`, which the words never contain. So two tools have the same alias only if they are actions of the same
//! app whose names have the same digest, which practically happens only on purpose.

use alloc::string::String;

/// The maximum length of the name of a tool, in bytes.
const MAX_BYTES: usize = 128;
/// The maximum length of an app id that is used unabridged in an alias, so that the alias is not longer than [`MAX_BYTES`].
const WHOLE_APP: usize = 80;
/// The number of bytes that are used of a longer app id. The digest of the id follows them.
const PART_OF_APP: usize = 60;
/// The maximum length of the words of an action in its alias. With most app ids the alias is then not longer than 64 bytes, the limit of
/// many models.
const WORDS: usize = 28;
/// The separator before a digest.
const MARK: &str = "--";
/// The number of digits of a digest.
const DIGITS: usize = 16;

/// The name of the tool for an action.
pub(super) fn of_action(app: &str, action: &str) -> String {
    let plain = alloc::format!("{app}__{action}");
    if is_allowed(&plain) && !is_alias(&plain) { plain } else { alias(app, action) }
}

/// Returns `true` if the name of a tool has the form of an alias.
pub(super) fn is_alias(tool: &str) -> bool {
    let digits = |digits: &[u8]| digits.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    let bytes = tool.as_bytes();
    bytes.split_last_chunk::<DIGITS>().is_some_and(|(rest, last)| rest.ends_with(MARK.as_bytes()) && digits(last))
}

/// The text that stands for the app in the alias of each of its actions.
pub(super) fn app_in_alias(app: &str) -> String {
    match app.get(..PART_OF_APP) {
        Some(part) if app.len() > WHOLE_APP => alloc::format!("{part}{MARK}{:016x}", digest(app)),
        _ => String::from(app),
    }
}

/// The part of an alias that stands for its app; `None` for a name without a `__`.
pub(super) fn app_of_alias(alias: &str) -> Option<&str> {
    alias.rsplit_once("__").map(|(app, _)| app)
}

fn alias(app: &str, action: &str) -> String {
    alloc::format!("{}__{}{MARK}{:016x}", app_in_alias(app), words(action), digest(action))
}

fn is_allowed(tool: &str) -> bool {
    tool.len() <= MAX_BYTES && tool.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
}

/// The beginning of a name, with each run of characters other than ASCII letters, digits and `-` replaced by one `_`, and no `_` at either
/// end.
fn words(name: &str) -> String {
    let mut words = String::new();
    let mut gap = false;
    for letter in name.chars() {
        if !letter.is_ascii_alphanumeric() && letter != '-' {
            gap = !words.is_empty();
            continue;
        }
        if words.len().saturating_add(usize::from(gap)) >= WORDS {
            break;
        }
        if core::mem::take(&mut gap) {
            words.push('_');
        }
        words.push(letter);
    }
    words
}

/// The FNV-1a hash with 64 bits, which makes an accidental collision within one app very unlikely.
fn digest(name: &str) -> u64 {
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    name.bytes().fold(BASIS, |digest, byte| (digest ^ u64::from(byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allowed_names_that_do_not_look_like_an_alias_are_unchanged() {
        let longest = "a".repeat(MAX_BYTES - "ledger__".len());
        for action in ["t", "post_entry", "Post.Entry-2", "a__b", "", "x--", "x--0123456789abcde", "x--0123456789ABCDEF", &longest]
        {
            assert_eq!(of_action("ledger", action), alloc::format!("ledger__{action}"));
        }
    }

    #[test]
    fn other_names_get_an_alias_that_begins_like_the_name() {
        for (action, alias) in [
            ("post entry", "ledger__post_entry--"),
            ("Eintrag löschen", "ledger__Eintrag_l_schen--"),
            ("  __a__ b__  ", "ledger__a_b--"),
            ("転記", "ledger__--"),
            ("one two three four five six seven", "ledger__one_two_three_four_five_six--"),
            ("x--0123456789abcdef", "ledger__x--0123456789abcdef--"),
            ("\u{0}\n", "ledger__--"),
        ] {
            let tool = of_action("ledger", action);
            assert_eq!(tool, alloc::format!("{alias}{:016x}", digest(action)));
            assert!(is_alias(&tool) && is_allowed(&tool), "{tool}");
        }
    }

    /// Aliases that an agent has stored must stay valid with the next version of the gateway.
    #[test]
    fn aliases_never_change() {
        assert_eq!(digest(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(digest("foobar"), 0x8594_4171_f739_67e8);
        assert_eq!(of_action("ledger", "post entry"), "ledger__post_entry--35aff9daf0848473");
        let long = "a".repeat(WHOLE_APP + 1);
        let part = "a".repeat(PART_OF_APP);
        assert_eq!(of_action(&long, "x y"), alloc::format!("{part}--ec97501278f66cbc__x_y--beccb1197f2b3af4"));
    }

    #[test]
    fn the_app_of_an_alias_is_the_text_before_its_last_separator() {
        for app in ["a", "a_", "a__", "a__b", "a___b__", &"a_".repeat(40), &"a_".repeat(41), &"_".repeat(128)] {
            for action in ["", " ", "_", "__", "_ x", "__ x", "x __", "x __ y", "\u{e4}", &"y z".repeat(100)] {
                let alias = alias(app, action);
                assert!(is_alias(&alias) && alias.len() <= MAX_BYTES, "{alias}");
                assert_eq!(app_of_alias(&alias), Some(&*app_in_alias(app)), "{alias}");
            }
        }
    }
}
