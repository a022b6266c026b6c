//! Named locks: one of several nodes at a time.

use std::cell::Cell;
use std::time::Duration;

use futures_util::future::join_all;
use leadonce::store::{Store, Use};

use crate::stage::*;

const LOCK: &str = "credential:crm";

both! {
    fn c28_of_many_that_find_a_credential_expired_one_refreshes_it(stage) {
        let nodes: Vec<Store> = (0..3)
            .map(|_| {
                let (store, writer) = Store::open(&stage.place.settings(), Use::Tool).expect("opens");
                start(writer);
                store
            })
            .collect();
        let (fresh, refreshes) = (Cell::new(false), Cell::new(0));
        let user = async |number: usize| {
            let (store, holder) = (&nodes[number % 3], format!("user-{number}"));
            while !fresh.get() {
                let until = NOW.plus(MINUTE);
                if store.take_lock(LOCK.into(), holder.clone(), NOW, until).await.expect("asked") {
                    // Somebody may have been here before.
                    if !fresh.get() {
                        refreshes.set(refreshes.get() + 1);
                        tokio::time::sleep(Duration::from_millis(20)).await;
                        fresh.set(true);
                    }
                    store.release_lock(LOCK.into(), holder.clone()).await.expect("given back");
                } else {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            }
        };
        runtime().block_on(join_all((0..20).map(&user)));
        assert_eq!(refreshes.get(), 1);
    }
}

both! {
    fn a_lock_ends_by_itself_and_is_given_back_by_its_holder_alone(stage) {
        let take = |holder: &str, now, until| {
            stage.wait(stage.store.take_lock(LOCK.into(), holder.into(), now, until)).expect("asked")
        };
        let release = |holder: &str| stage.wait(stage.store.release_lock(LOCK.into(), holder.into())).expect("asked");
        let end = NOW.plus(MINUTE);
        assert!(take("a", NOW, end));
        assert!(!take("b", end.minus(Duration::from_micros(1)), end.plus(MINUTE)), "it runs");
        assert!(take("b", end, end.plus(MINUTE)), "its holder is lost");
        release("a");
        assert!(!take("a", end, end.plus(MINUTE)), "only its holder gives it back");
        assert!(take("b", end, end.plus(MINUTE * 2)), "its holder keeps it");
        release("b");
        assert!(take("a", end, end.plus(MINUTE)));
    }
}
