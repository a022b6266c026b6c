//! The shell around the delivery engine: one loop a destination that takes due work and spawns it, until it is told to stop.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, watch};

use crate::clock::Clock;
use crate::delivery::Engine;
use crate::operation::{DestinationName, Operation};
use crate::store::Store;

/// How often a destination looks for due work when nothing wakes it.
const POLL: Duration = Duration::from_secs(1);

/// The shortest time between two looks that nothing woke.
const SOON: Duration = Duration::from_millis(50);

/// How long slots that become free one after the other are gathered, to be filled by one look: a look costs the store as much as
/// several leads, whether it finds one or a hundred.
const GATHER: Duration = Duration::from_millis(4);

/// Runs one destination until `stop` says so; comes back when its open calls are answered and written down.
pub(super) async fn run(
    engine: Arc<Engine>,
    store: Store,
    clock: Arc<dyn Clock>,
    name: DestinationName,
    mut stop: watch::Receiver<bool>,
) {
    let concurrency = engine.line(&name).map_or(1, |line| line.settings.concurrency.max(1));
    let slots = Arc::new(Semaphore::new(usize::try_from(concurrency).unwrap_or(1)));
    let work = store.work();
    while !*stop.borrow() {
        // Registered before the query, so that no wake-up between the two is lost.
        let woken = work.notified();
        tokio::pin!(woken);
        woken.as_mut().enable();
        let wait = turn(&engine, clock.as_ref(), &name, &slots).await;
        if wait.is_zero() {
            let some = slots.acquire_many(concurrency.div_ceil(4));
            let _ = tokio::time::timeout(GATHER, some).await;
            continue;
        }
        let slot_free = async {
            // Without a free slot nothing can be taken: the end of a call is what to wait for.
            if slots.available_permits() == 0 {
                let _ = slots.acquire().await;
            } else {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = woken => {}
            () = slot_free => {}
            () = tokio::time::sleep(wait) => {}
            _ = stop.changed() => {}
        }
    }
    let _ = slots.acquire_many(concurrency).await;
}

/// Takes and spawns what may start now; how long nothing more can start, unless something wakes the loop.
async fn turn(engine: &Arc<Engine>, clock: &dyn Clock, name: &DestinationName, slots: &Arc<Semaphore>) -> Duration {
    let free = slots.available_permits();
    if free == 0 {
        // The open calls still need the rate.
        engine.keep_rate(name).await;
        return POLL;
    }
    let taken = match engine.take(name, free).await {
        Ok(taken) => taken,
        Err(error) => {
            tracing::warn!(destination = %name, %error, "no work could be taken");
            return POLL;
        }
    };
    let any = !taken.creates.is_empty() || !taken.lookups.is_empty();
    for operation in taken.lookups {
        spawn(engine, slots, operation, Kind::LookUp);
    }
    for operation in taken.creates {
        spawn(engine, slots, operation, Kind::Create);
    }
    if any {
        return Duration::ZERO;
    }
    // What is due and was not given (a probe is out, the rate is used up) is worth a look soon, not at once.
    let due = taken.next_due.map_or(POLL, |due| due.since(clock.now()).max(SOON));
    due.max(engine.rate_wait(name)).min(POLL)
}

enum Kind {
    Create,
    LookUp,
}

fn spawn(engine: &Arc<Engine>, slots: &Arc<Semaphore>, operation: Operation, kind: Kind) {
    let (engine, slots) = (Arc::clone(engine), Arc::clone(slots));
    let Ok(permit) = Arc::clone(&slots).try_acquire_owned() else {
        // Never more is taken than slots are free; should it happen, the lease brings the operation back.
        tracing::error!(operation_id = %operation.id, "taken without a free slot");
        return;
    };
    tokio::spawn(async move {
        let id = operation.id;
        let result = match kind {
            Kind::Create => engine.create(operation).await,
            Kind::LookUp => engine.look_up(operation).await,
        };
        if let Err(error) = result {
            tracing::warn!(operation_id = %id, %error, "a step could not be written; its lease brings it back");
        }
        drop(permit);
    });
}
