//! A registry on a disk that is full or hangs for a while.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use redb::StorageBackend;
use redb::backends::InMemoryBackend;

use super::*;
use crate::registry::Registration;

/// The longest time that a test waits for the thread.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// A file that can be full. It stays when a database is closed.
#[derive(Clone, Debug, Default)]
struct FakeDisk {
    file: Arc<InMemoryBackend>,
    is_full: Arc<AtomicBool>,
    /// How often a database was opened.
    opened: Arc<AtomicU32>,
    hang: Arc<Hang>,
}

/// Whether a disk hangs.
#[derive(Debug, Default)]
struct Hang {
    is_hanging: Mutex<bool>,
    released: Condvar,
    /// How many writes have met the hang.
    met: AtomicU32,
}

impl Hang {
    fn set(&self, is_hanging: bool) {
        *self.is_hanging.lock().unwrap() = is_hanging;
        self.released.notify_all();
    }

    /// Returns when the disk does not hang.
    fn wait(&self) {
        let is_hanging = self.is_hanging.lock().unwrap();
        if *is_hanging {
            self.met.fetch_add(1, Ordering::Relaxed);
        }
        drop(self.released.wait_while(is_hanging, |is_hanging| *is_hanging).unwrap());
    }
}

impl FakeDisk {
    fn open(&self) -> Result<Database, DatabaseError> {
        self.opened.fetch_add(1, Ordering::Relaxed);
        Database::builder().create_with_backend(self.clone())
    }

    fn registry(&self) -> FileRegistry {
        self.registry_at(wall_clock())
    }

    /// Starts a registry at a time of the wall clock.
    fn registry_at(&self, now: UnixMillis) -> FileRegistry {
        let disk = self.clone();
        FileRegistry::start(self.open().unwrap(), now, move || disk.open()).unwrap()
    }

    /// Waits until the thread of a registry that was dropped has ended.
    async fn closed(&self) {
        until("the thread has ended", || Arc::strong_count(&self.file) == 1).await;
    }

    fn set_full(&self, is_full: bool) {
        self.is_full.store(is_full, Ordering::Relaxed);
    }

    fn room(&self) -> io::Result<()> {
        if self.is_full.load(Ordering::Relaxed) { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

impl StorageBackend for FakeDisk {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.room()?;
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.hang.wait();
        self.room()?;
        self.file.write(offset, data)
    }
}

fn heartbeat() -> Heartbeat {
    let registration = Registration {
        id: "a".parse().unwrap(),
        protocol_id: 7,
        addresses: vec!["192.0.2.1:40000".parse().unwrap()],
        group: "g".parse().unwrap(),
        region: None,
        slots: 3,
        free_slots: 3,
        is_draining: false,
        build: None,
    };
    Heartbeat { registration, admitted: Vec::new(), running: None, instance: None }
}

fn request(client_id: u64) -> SlotRequest {
    SlotRequest {
        protocol_id: 7,
        group: "g".parse().unwrap(),
        regions: Vec::new(),
        only_regions: false,
        server_count: 1,
        client_id: client_id.into(),
        lifetime: Duration::from_secs(600),
    }
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let begin = std::time::Instant::now();
    while !holds() {
        assert!(begin.elapsed() < MAX_WAIT, "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn registry_is_available_again_after_a_full_disk() {
    let disk = FakeDisk::default();
    let registry = disk.registry();
    registry.register(heartbeat(), &Scopes::default()).await.unwrap();
    registry.reserve(request(1)).await.unwrap();
    disk.set_full(true);
    assert_eq!(registry.reserve(request(2)).await, Err(RegistryError::Unconfirmed));
    assert_eq!(registry.check(), Err(RegistryError::Unavailable));
    // Requests do not wait for the disk, and the thread keeps trying.
    until("two attempts", || disk.opened.load(Ordering::Relaxed) >= 3).await;
    assert_eq!(registry.reserve(request(3)).await, Err(RegistryError::Unavailable));
    assert_eq!(registry.register(heartbeat(), &Scopes::default()).await, Err(RegistryError::Unavailable));
    assert_eq!(registry.servers().await, Err(RegistryError::Unavailable));
    disk.set_full(false);
    until("the registry is available", || registry.check().is_ok()).await;

    registry.register(heartbeat(), &Scopes::default()).await.unwrap();
    assert_eq!(registry.servers().await.unwrap()[0].reserved_slots, 1, "only one request got its token");
    for client in [4, 5] {
        registry.reserve(request(client)).await.unwrap();
    }
    assert_eq!(registry.reserve(request(6)).await, Err(RegistryError::NoFreeSlots));
    drop(registry);
    disk.closed().await;
    let registry = disk.registry();
    registry.register(heartbeat(), &Scopes::default()).await.unwrap();
    assert_eq!(registry.servers().await.unwrap()[0].reserved_slots, 3);
}

/// Reserves a second slot on a disk that hangs from then on, and returns the request, which waits for the disk.
async fn hang<'a>(disk: &FakeDisk, registry: &'a FileRegistry) -> RegistryFuture<'a, Vec<ReservedServer>> {
    registry.register(heartbeat(), &Scopes::default()).await.unwrap();
    registry.reserve(request(1)).await.unwrap();
    disk.hang.set(true);
    let second = registry.reserve(request(2));
    until("the disk hangs", || disk.hang.met.load(Ordering::Relaxed) > 0).await;
    second
}

#[tokio::test]
async fn requests_are_refused_while_the_disk_hangs() {
    let disk = FakeDisk::default();
    let registry = disk.registry();
    let second = hang(&disk, &registry).await;
    let third = registry.reserve(request(3));
    let refused = timeout(MAX_WAIT, async { (second.await, third.await) }).await;
    let unconfirmed = || Err(RegistryError::Unconfirmed);
    assert_eq!(refused, Ok((unconfirmed(), unconfirmed())), "requests that wait are refused");
    assert_eq!(registry.check(), Err(RegistryError::Unavailable));
    assert_eq!(registry.servers().await, Err(RegistryError::Unavailable));
    disk.hang.set(false);
    until("the registry is available", || registry.check().is_ok()).await;

    registry.register(heartbeat(), &Scopes::default()).await.unwrap();
    let reserved = registry.servers().await.unwrap()[0].reserved_slots;
    assert_eq!(reserved, 2, "the request behind the write that hung has no reservation");
    registry.reserve(request(4)).await.unwrap();
    assert_eq!(registry.reserve(request(5)).await, Err(RegistryError::NoFreeSlots));
}

#[tokio::test]
async fn full_queue_refuses_requests_and_reserves_nothing() {
    let disk = FakeDisk::default();
    let registry = disk.registry();
    let second = hang(&disk, &registry).await;
    assert_eq!(registry.places.available_permits(), MAX_BATCHES - 1, "the second request waits");
    let others = registry.places.acquire_many(MAX_BATCHES as u32 - 1).await.unwrap();
    let third = registry.reserve(request(3));
    disk.hang.set(false);
    assert_eq!(third.await, Err(RegistryError::Unavailable));
    // A slow machine may see a stall.
    let _ = second.await;
    until("the registry is available", || registry.check().is_ok()).await;
    until("the second request has left the queue", || registry.places.available_permits() == 1).await;
    assert_eq!(registry.servers().await.unwrap()[0].reserved_slots, 2);
    drop(others);
    registry.reserve(request(4)).await.unwrap();
}

#[tokio::test]
async fn clock_that_was_set_back_keeps_no_slots() {
    let (disk, now) = (FakeDisk::default(), wall_clock());
    let registry = disk.registry_at(UnixMillis(now.0 + 3_600_000));
    registry.register(heartbeat(), &Scopes::default()).await.unwrap();
    registry.reserve(SlotRequest { lifetime: Duration::from_millis(200), ..request(1) }).await.unwrap();
    registry.reserve(request(2)).await.unwrap();
    drop(registry);
    disk.closed().await;
    let registry = disk.registry_at(now);
    registry.register(heartbeat(), &Scopes::default()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(250)).await;
    let listed = registry.servers().await.unwrap();
    assert_eq!((listed[0].reserved_slots, listed[0].state()), (1, crate::registry::RegistryState::Ready));
    assert!(listed[0].heartbeat_age >= Duration::from_millis(250), "the heartbeat is not in the future");
}

#[tokio::test]
async fn dead_server_leaves_the_list_after_a_minute_without_any_heartbeat() {
    let (disk, now) = (FakeDisk::default(), wall_clock());
    let registry = disk.registry_at(now);
    registry.register(heartbeat(), &Scopes::default()).await.unwrap();
    drop(registry);
    disk.closed().await;
    for (later, expected) in [(59_000, 1), (61_000, 0)] {
        let registry = disk.registry_at(UnixMillis(now.0 + later));
        assert_eq!(registry.servers().await.unwrap().len(), expected, "after {later} ms");
        drop(registry);
        disk.closed().await;
    }
}
