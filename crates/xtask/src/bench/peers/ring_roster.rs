//! Rosters as a ring, as `throng account bulk --roster ring:R` makes them, so that all servers have the same.
//!
//! Written independently of the server, so that a peer is compared with the documented rule and not with the code that
//! is measured. `peers/fill.erl` has the rule a third time, for ejabberd; the login after each start counts the
//! contacts.

/// The contacts of account `i` among `n` accounts: the `ring` nearest, half on each side, sorted.
///
/// Always mutual. An odd `ring` pairs the accounts at the next distance off, block by block; accounts without a partner
/// have one contact less.
pub(super) fn neighbours(i: usize, n: usize, ring: usize) -> Vec<usize> {
    let half = ring / 2;
    let mut list: Vec<usize> = (1..=half).flat_map(|d| [(i + d) % n, (i + n - d) % n]).collect();
    if ring % 2 == 1 {
        let distance = half + 1;
        let partner = if (i / distance).is_multiple_of(2) { i + distance } else { i - distance };
        if partner < n {
            list.push(partner);
        }
    }
    list.sort_unstable();
    list.dedup();
    list.retain(|j| *j != i);
    list
}

#[cfg(test)]
mod tests {
    use super::neighbours;

    #[test]
    fn the_nearest_on_both_sides() {
        assert_eq!(neighbours(0, 10, 4), [1, 2, 8, 9]);
        assert_eq!(neighbours(5, 10, 4), [3, 4, 6, 7]);
        assert!(neighbours(3, 10, 0).is_empty());
    }

    #[test]
    fn every_contact_is_mutual() {
        for (n, ring) in [(10, 3), (100, 50), (7, 2), (1000, 3), (301, 150)] {
            let all: Vec<_> = (0..n).map(|i| neighbours(i, n, ring)).collect();
            for (i, list) in all.iter().enumerate() {
                assert!(list.len() + 1 >= ring && list.len() <= ring + 1, "{i} of {n}: {list:?}");
                assert!(list.iter().all(|j| all[*j].contains(&i)), "{i} of {n} with {ring}");
            }
        }
    }
}
