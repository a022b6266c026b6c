//! What one node commits wakes the others: two stores on one PostgreSQL. Nothing here polls, so what wakes is the bell.

use std::time::Duration;

use leadonce::operation::transition::Event;
use leadonce::store::{Store, Use};

use crate::stage::*;

/// The longest a wake-up may take. Generous: the machines are slow and shared.
const PATIENCE: Duration = Duration::from_secs(20);

/// Another node on the store of a stage, with a bell that hears.
fn node(stage: &Stage) -> Store {
    let (store, writer) = Store::open(&stage.place.settings(), Use::Serve).expect("opens");
    start(writer);
    hang_bell(stage, &store);
    store
}

/// Gives a node its bell; comes back when it listens: it wakes whoever waits for work then, for what was told before.
fn hang_bell(stage: &Stage, store: &Store) {
    let mut bell = store.bell().expect("PostgreSQL has bells");
    std::thread::spawn(move || while bell.step() {});
    woken(stage, store);
}

fn woken(stage: &Stage, store: &Store) {
    let work = store.work();
    stage.wait(async { tokio::time::timeout(PATIENCE, work.notified()).await }).expect("it was woken");
}

/// Comes back when nothing wakes a node any more: a wake-up also leaves word for who comes late.
fn quiet(stage: &Stage, store: &Store) {
    let work = store.work();
    stage.wait(async { while tokio::time::timeout(Duration::from_millis(100), work.notified()).await.is_ok() {} });
}

#[test]
fn work_that_one_node_commits_wakes_the_others() {
    let Some(stage) = Stage::postgres() else { return };
    let others = [node(&stage), node(&stage)];
    hang_bell(&stage, &stage.store);
    for number in 0..5 {
        others.iter().for_each(|other| quiet(&stage, other));
        stage.admit_one(keyed(&format!("k{number}"), "a lead"));
        for other in &others {
            woken(&stage, other);
        }
    }
}

#[test]
fn what_one_node_finishes_is_told_to_who_waits_at_another() {
    let Some(stage) = Stage::postgres() else { return };
    let other = node(&stage);
    hang_bell(&stage, &stage.store);
    let mut finished = other.finished();
    // More at once than one message holds.
    let events: Vec<String> = (0..450).map(|number| format!("k{number}")).collect();
    let events: Vec<_> = events.iter().map(|key| (Some(key.as_str()), "a lead")).collect();
    stage.admit(delivery_at(NOW, &events));
    let taken = stage.wait(stage.store.take(take_at(NOW, "node", events.len()))).expect("taken").creates;
    assert_eq!(taken.len(), events.len());
    for claimed in &taken {
        stage.apply(claimed, &Event::AttemptBegun, NOW);
    }
    // No way to look it up: all their cases go to a person in one commit, which is an end for who waits.
    let mut request = take_at(NOW.plus(2 * MINUTE), "other", 0);
    request.first_lookup_at = None;
    let mut ended = std::collections::BTreeSet::new();
    while ended.len() < taken.len() {
        let expired = stage.wait(stage.store.take(request.clone())).expect("taken").expired;
        assert!(!expired.is_empty());
        ended.extend(expired.into_iter().map(|operation| operation.id));
    }
    stage.wait(async {
        while !ended.is_empty() {
            let id = tokio::time::timeout(PATIENCE, finished.recv()).await.expect("it was told").expect("an id");
            ended.remove(&id);
        }
    });
}

#[test]
fn a_bell_whose_connection_was_cut_hangs_again_and_wakes_for_what_it_missed() {
    let Some(stage) = Stage::postgres() else { return };
    let other = node(&stage);
    hang_bell(&stage, &stage.store);
    let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()";
    for round in 0..2 {
        quiet(&stage, &other);
        stage.place.execute(cut);
        // Nothing is committed yet: it wakes because it listens again.
        woken(&stage, &other);
        quiet(&stage, &other);
        stage.admit_one(keyed(&format!("k{round}"), "a lead"));
        woken(&stage, &other);
    }
}

#[test]
fn a_bell_ends_with_its_store_and_sqlite_has_none() {
    assert!(Stage::sqlite().store.bell().is_none());
    let Some(stage) = Stage::postgres() else { return };
    let (store, writer) = Store::open(&stage.place.settings(), Use::Serve).expect("opens");
    let mut bell = store.bell().expect("a bell");
    assert!(bell.step());
    drop((store, writer));
    assert!(!bell.step());
}
