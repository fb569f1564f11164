//! Copies of a database in use: complete, readable, and not in the way of writers.
#![allow(clippy::unwrap_used, reason = "clippy sees helpers outside of #[test] as ordinary code")]

mod support;

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use store::conformance::jid;
use store::{Page, StoreErrorKind};
use support::{TempDir, open, runtime};
use throng_store_sql::{DatabaseOptions, backup};

#[test]
fn a_copy_under_writes_has_everything_that_was_acknowledged_before() {
    let directory = TempDir::new();
    runtime().block_on(async {
        let database = open(&directory.file(), &DatabaseOptions::default()).await.unwrap();
        let stores = database.stores();
        let (stop, acknowledged) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        #[allow(clippy::disallowed_methods, reason = "the test waits for its only task")]
        let writing = tokio::spawn({
            let (stores, stop, acknowledged) = (stores.clone(), stop.clone(), acknowledged.clone());
            async move {
                for user in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    stores.accounts.create(&jid(&format!("u{user}@example.org")), b"x").await.unwrap();
                    acknowledged.store(user + 1, Ordering::Release);
                }
            }
        });
        while acknowledged.load(Ordering::Acquire) < 20 {
            tokio::task::yield_now().await;
        }
        let url = format!("sqlite:{}", directory.file().display());
        for round in 0..3u32 {
            let before = acknowledged.load(Ordering::Acquire);
            let target = directory.0.join(format!("copy-{round}.db"));
            let size = backup(&url, &target).await.unwrap();
            let file = std::fs::metadata(&target).unwrap();
            assert_eq!((file.len(), file.permissions().mode() & 0o777), (size, 0o600));
            let copy = open(&target, &DatabaseOptions::default()).await.unwrap();
            let found = copy.stores().accounts.count("example.org").await.unwrap();
            assert!(found >= u64::from(before), "{found} of {before}");
            copy.close().await;
        }
        stop.store(true, Ordering::Relaxed);
        writing.await.unwrap();
        let all = stores.accounts.list("example.org", Page::first(100_000)).await.unwrap();
        assert_eq!(all.items.len(), acknowledged.load(Ordering::Acquire) as usize);
        database.close().await;
    });
}

#[test]
fn a_copy_never_replaces_a_file_and_leaves_nothing_after_a_failure() {
    let directory = TempDir::new();
    let url = format!("sqlite:{}", directory.file().display());
    runtime().block_on(async {
        let target = directory.0.join("copy.db");
        let missing = backup(&url, &target).await.unwrap_err();
        assert!(missing.message().contains("does not exist"), "{missing}");
        open(&directory.file(), &DatabaseOptions::default()).await.unwrap().close().await;
        std::fs::write(&target, "precious").unwrap();
        let exists = backup(&url, &target).await.unwrap_err();
        assert_eq!(exists.kind, StoreErrorKind::Setup);
        assert_eq!(std::fs::read(&target).unwrap(), b"precious");
        // Links are not followed, whether their target exists or not.
        let victim = directory.0.join("victim.db");
        for (link, name) in [("link.db", "link.db"), ("through.db.partial", "through.db")] {
            std::os::unix::fs::symlink(&victim, directory.0.join(link)).unwrap();
            assert_eq!(backup(&url, &directory.0.join(name)).await.unwrap_err().kind, StoreErrorKind::Setup);
            assert!(!victim.exists() && directory.0.join(link).is_symlink(), "{link}");
        }
        assert!(backup(&url, &directory.0.join("no/such/folder.db")).await.is_err());
        std::fs::write(directory.file(), "this is not a database, but long enough to be read as one")
            .unwrap();
        let target = directory.0.join("other.db");
        assert!(backup(&url, &target).await.is_err());
        assert!(!target.exists() && !directory.0.join("other.db.partial").exists());
    });
}
