//! A list of blocks of content.

use alloc::vec;
use alloc::vec::Vec;
use core::iter::Chain;
use core::ops::{Deref, DerefMut};
use core::{fmt, mem, option, slice};

use super::Content;

/// A list of blocks of content. It dereferences to a slice, and converts from and into a `Vec`.
///
/// A list of one block, as in most results, is stored without an allocation. A list that is made from a `Vec` keeps the `Vec`.
#[derive(Clone, Default)]
pub struct Blocks(Storage);

#[derive(Clone)]
enum Storage {
    One(Content),
    List(Vec<Content>),
}

impl Default for Storage {
    fn default() -> Self {
        Self::List(Vec::new())
    }
}

impl Blocks {
    /// Adds a block at the end.
    pub fn push(&mut self, block: Content) {
        if let Storage::List(list) = &mut self.0
            && !list.is_empty()
        {
            return list.push(block);
        }
        self.0 = match mem::take(&mut self.0) {
            Storage::One(first) => Storage::List(vec![first, block]),
            // The list is empty.
            Storage::List(_) => Storage::One(block),
        };
    }
}

impl Deref for Blocks {
    type Target = [Content];

    fn deref(&self) -> &[Content] {
        match &self.0 {
            Storage::One(block) => slice::from_ref(block),
            Storage::List(list) => list,
        }
    }
}

impl DerefMut for Blocks {
    fn deref_mut(&mut self) -> &mut [Content] {
        match &mut self.0 {
            Storage::One(block) => slice::from_mut(block),
            Storage::List(list) => list,
        }
    }
}

impl From<Content> for Blocks {
    fn from(block: Content) -> Self {
        Self(Storage::One(block))
    }
}

impl From<Vec<Content>> for Blocks {
    fn from(list: Vec<Content>) -> Self {
        Self(Storage::List(list))
    }
}

impl<const COUNT: usize> From<[Content; COUNT]> for Blocks {
    fn from(blocks: [Content; COUNT]) -> Self {
        blocks.into_iter().collect()
    }
}

impl From<Blocks> for Vec<Content> {
    fn from(Blocks(storage): Blocks) -> Self {
        match storage {
            Storage::One(block) => vec![block],
            Storage::List(list) => list,
        }
    }
}

impl Extend<Content> for Blocks {
    fn extend<I: IntoIterator<Item = Content>>(&mut self, blocks: I) {
        let mut blocks = blocks.into_iter();
        while let Some(block) = blocks.next() {
            self.push(block);
            if let Storage::List(list) = &mut self.0 {
                return list.extend(blocks);
            }
        }
    }
}

impl FromIterator<Content> for Blocks {
    fn from_iter<I: IntoIterator<Item = Content>>(blocks: I) -> Self {
        let mut all = Self::default();
        all.extend(blocks);
        all
    }
}

impl IntoIterator for Blocks {
    type Item = Content;
    type IntoIter = Chain<option::IntoIter<Content>, vec::IntoIter<Content>>;

    fn into_iter(self) -> Self::IntoIter {
        let (one, list) = match self.0 {
            Storage::One(block) => (Some(block), Vec::new()),
            Storage::List(list) => (None, list),
        };
        one.into_iter().chain(list)
    }
}

impl<'a> IntoIterator for &'a Blocks {
    type Item = &'a Content;
    type IntoIter = slice::Iter<'a, Content>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl PartialEq for Blocks {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Blocks {}

impl fmt::Debug for Blocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_equal_however_they_were_collected() {
        let all = ["a", "b", "c"].map(|text| Content::Text(text.into()));
        for count in 0..=all.len() {
            let given = &all[..count];
            let mut pushed = Blocks::default();
            given.iter().for_each(|block| pushed.push(block.clone()));
            let mut extended = given.iter().take(1).cloned().collect::<Blocks>();
            extended.extend(given.iter().skip(1).cloned());
            let mut ways = vec![Blocks::from(given.to_vec()), given.iter().cloned().collect(), pushed, extended];
            match given {
                [one] => ways.extend([one.clone().into(), [one.clone()].into()]),
                [one, two] => ways.push([one.clone(), two.clone()].into()),
                _ => {}
            }
            for mut blocks in ways {
                assert_eq!(*blocks, *given);
                assert_eq!(blocks, Blocks::from(given.to_vec()));
                assert!((&blocks).into_iter().eq(given));
                assert_eq!(alloc::format!("{blocks:?}"), alloc::format!("{given:?}"));
                assert_eq!(Vec::from(blocks.clone()), given);
                assert!(blocks.clone().into_iter().eq(given.iter().cloned()));
                if let Some(last) = blocks.last_mut() {
                    *last = Content::Text("changed".into());
                    assert_ne!(*blocks, *given);
                }
            }
        }
        assert_ne!(Blocks::from(all[0].clone()), Blocks::from(all[1].clone()));
    }
}
