//! The registry in a file: the same rules, restarts, and a file that another issuer has open.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use slipgate_token_issuer::registry::{FileRegistry, FileRegistryError, Registry, RegistryError};

use super::rules::{
    ALL, check_dead_servers, check_instances, check_order, check_rules, check_scopes, check_unknown_removals,
    heartbeat, instance, numbered, request, reserve_all, reserve_rest, server,
};

/// A folder that is removed at the end of a test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("slipgate-registry-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn open(&self) -> Result<FileRegistry, FileRegistryError> {
        FileRegistry::open(&self.0.join("registry"))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Opens the file again once the thread of the previous registry has closed it.
async fn reopen(folder: &Folder) -> FileRegistry {
    for _ in 0..500 {
        match folder.open() {
            Ok(registry) => return registry,
            Err(FileRegistryError::InUse) => tokio::time::sleep(std::time::Duration::from_millis(10)).await,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the file stays in use");
}

#[tokio::test]
async fn file_follows_the_rules() {
    let folder = Folder::new();
    let registry = folder.open().unwrap();
    check_scopes(&registry).await;
    check_instances(&registry).await;
    check_order(&registry).await;
    check_unknown_removals(&registry).await;
    check_rules(&registry).await;
    check_dead_servers(&registry).await;
}

#[tokio::test]
async fn reservations_survive_a_restart() {
    let folder = Folder::new();
    let registry = folder.open().unwrap();
    registry.register(heartbeat(&server("a", 2)), &ALL).await.unwrap();
    registry.reserve(request(1)).await.unwrap();
    drop(registry);
    let registry = reopen(&folder).await;
    assert_eq!(registry.servers().await.unwrap()[0].reserved_slots, 1);
    registry.register(heartbeat(&server("a", 2)), &ALL).await.unwrap();
    registry.reserve(request(2)).await.unwrap();
    assert_eq!(registry.reserve(request(3)).await, Err(RegistryError::NoFreeSlots));
    let mut left = heartbeat(&server("a", 2));
    left.admitted = vec![1_u64.into(), 2_u64.into()];
    registry.register(left, &ALL).await.unwrap();
    drop(registry);
    let registry = reopen(&folder).await;
    assert_eq!(registry.servers().await.unwrap()[0].reserved_slots, 0);

    // A server that was removed gets its reservations back, also after a restart of the issuer.
    registry.reserve(request(4)).await.unwrap();
    registry.remove("a".parse().unwrap(), None, &ALL).await.unwrap();
    drop(registry);
    let registry = reopen(&folder).await;
    assert_eq!(registry.servers().await.unwrap(), []);
    registry.register(heartbeat(&server("a", 2)), &ALL).await.unwrap();
    assert_eq!(registry.servers().await.unwrap()[0].reserved_slots, 1);
    registry.reserve(request(5)).await.unwrap();
    assert_eq!(registry.reserve(request(6)).await, Err(RegistryError::NoFreeSlots));
    drop(registry);
    let registry = reopen(&folder).await;
    assert_eq!(registry.servers().await.unwrap()[0].reserved_slots, 2);
}

#[tokio::test]
async fn order_of_heartbeats_survives_a_restart() {
    let folder = Folder::new();
    let registry = folder.open().unwrap();
    registry.register(numbered("run", 5, 10), &ALL).await.unwrap();
    drop(registry);
    let registry = reopen(&folder).await;
    assert_eq!(registry.register(numbered("run", 4, 99), &ALL).await, Err(RegistryError::Late));
    assert_eq!(registry.servers().await.unwrap()[0].registration.free_slots, 10);
    assert_eq!(registry.remove(server("numbered", 1).id, instance("run", Some(7)), &ALL).await, Ok(true));
    drop(registry);
    let registry = reopen(&folder).await;
    assert_eq!(registry.register(numbered("run", 6, 99), &ALL).await, Err(RegistryError::Late));
    assert_eq!(registry.servers().await.unwrap(), []);
    registry.register(numbered("run", 8, 11), &ALL).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn file_gives_out_each_slot_once() {
    let folder = Folder::new();
    let registry = Arc::new(folder.open().unwrap());
    for number in 0..4 {
        registry.register(heartbeat(&server(&format!("s{number}"), 250)), &ALL).await.unwrap();
    }
    let beating = Arc::clone(&registry);
    let beats = tokio::spawn(async move {
        loop {
            for number in 0..4 {
                beating.register(heartbeat(&server(&format!("s{number}"), 250)), &ALL).await.unwrap();
            }
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        }
    });
    let registry: Arc<dyn Registry> = registry;
    let reserved = reserve_all(vec![Arc::clone(&registry)], 64, 0).await;
    beats.abort();
    let servers: Vec<_> = (0..4).map(|number| server(&format!("s{number}"), 250)).collect();
    (reserved + reserve_rest(&[registry], &servers).await).assert_slots(1_000);
}

#[tokio::test]
async fn file_of_another_issuer_or_kind_is_refused() {
    let folder = Folder::new();
    let _open = folder.open().unwrap();
    assert!(matches!(folder.open(), Err(FileRegistryError::InUse)));
    let mode = std::fs::metadata(folder.0.join("registry")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    std::fs::write(folder.0.join("other"), "not a registry, but a text of some length".repeat(200)).unwrap();
    assert!(matches!(FileRegistry::open(&folder.0.join("other")), Err(FileRegistryError::NotARegistry(_))));
    assert!(matches!(FileRegistry::open(&folder.0.join("none").join("new")), Err(FileRegistryError::Unusable(_))));
}
