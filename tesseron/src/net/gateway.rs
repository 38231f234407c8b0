//! A running gateway: a bridge that finds its apps by their manifests, and connects to them over sockets.

use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering};
use std::boxed::Box;
use std::collections::{BTreeMap, BTreeSet};
use std::format;
use std::io;
use std::string::String;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::vec::Vec;

use crate::bridge::{Advertised, BridgeConfig, BridgeEvent, ClaimId, Leg};
use crate::claims::{BoundDial, ChannelId, ClaimCode, OpenRefused};
use crate::legs::{BridgeLeg, SharedBridge};
use crate::net::TesseronError;
use crate::net::breadcrumb::{self, Breadcrumb, Minter};
use crate::net::{Home, Instance, ManifestRefused, Sockets, TesseronTransport, dial};
use adapter_io::Error as TransportError;
use protocol_core::drive::{Driver, FrameIo, Timer};
use protocol_core::session::Close;

/// A gateway between one MCP client and the apps of this user. A clone is another handle to the same gateway.
///
/// [`Gateway::serve`] serves the agent. Meanwhile call [`Gateway::next_event`] in a loop, and [`Gateway::rescan`] whenever manifests may
/// have changed, at least every few seconds. `rescan` connects to the apps that make no codes of their own, and reads the codes of all
/// other apps. If the channel of an app that makes no codes has ended and its manifest still exists, `rescan` connects again, so that the
/// app can resume.
pub struct Gateway<S: Sockets> {
    sockets: S,
    bridge: SharedBridge,
    home: Home,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    apps: Mutex<Apps>,
    /// `true` once [`breadcrumb::sweep`] was called, which happens only once.
    has_swept: AtomicBool,
    /// `true` once the system has failed to provide random bytes: codes and tokens that were made after that can be guessed.
    unsafe_codes: AtomicBool,
}

/// The apps, and their channels.
#[derive(Default)]
struct Apps {
    /// The ids of instances that are connected, or being connected.
    dialled: BTreeSet<String>,
    /// The id of the instance on each channel.
    channels: BTreeMap<ChannelId, String>,
    /// The app id in the last accepted hello or resume of each instance, by the id of the instance.
    app_ids: BTreeMap<String, String>,
    /// The breadcrumbs of unclaimed sessions, by their channels.
    breadcrumbs: BTreeMap<ChannelId, Breadcrumb>,
    /// The last error of writing a breadcrumb since the last scan, or the error of [`breadcrumb::sweep`].
    unannounced: Option<TesseronError>,
    /// The errors of connecting to apps since the last scan, each with the name of the app.
    unreachable: Vec<(String, TesseronError)>,
}

/// The result of a scan of the manifests.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Scan {
    /// Manifests that cannot be used.
    pub refused: Vec<ManifestRefused>,
    /// The last error, since the last scan, of writing a breadcrumb, by which a code of this gateway is announced to other gateways. If
    /// there is none, the first scan that succeeds gives the error of removing old breadcrumbs here.
    pub unannounced: Option<TesseronError>,
    /// The errors of connecting to apps since the last scan, each with the name of the app; at most 64.
    pub unreachable: Vec<(String, TesseronError)>,
}

/// The maximum length of [`Scan::unreachable`].
const MAX_UNREACHABLE: usize = 64;

impl<S: Sockets> Clone for Gateway<S> {
    fn clone(&self) -> Self {
        Self {
            sockets: self.sockets.clone(),
            bridge: self.bridge.clone(),
            home: self.home.clone(),
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<S: Sockets> Gateway<S> {
    /// Creates a gateway that finds its apps in `home`. Replaces the wall-clock time in `config` by the current one.
    ///
    /// # Errors
    /// [`TesseronError::Random`] if the system has no random bytes.
    pub fn new(sockets: S, mut config: BridgeConfig, home: Home) -> Result<Self, TesseronError> {
        let shared = Arc::new(Shared::default());
        sockets.fill_random(&mut [0; 32]).map_err(TesseronError::Random)?;
        config.epoch_ms = sockets.epoch_ms();
        let random = {
            let (shared, sockets) = (Arc::clone(&shared), sockets.clone());
            Box::new(move |bytes: &mut [u8]| {
                if sockets.fill_random(bytes).is_err() {
                    shared.unsafe_codes.store(true, Ordering::Relaxed);
                }
            })
        };
        let bridge = SharedBridge::new(config, random, Arc::new(sockets.clone()));
        Ok(Self { sockets, bridge, home, shared })
    }

    /// Drives the agent's leg to its end, and then closes the channels to all apps.
    ///
    /// # Cancel safety
    /// Not cancel safe: if the future is dropped, the transport is dropped, the agent's session ends, and the channels to all apps are
    /// closed.
    ///
    /// # Errors
    /// [`adapter_io::Error::Broken`] if the transport fails.
    pub async fn serve<I: FrameIo<Error = io::Error>>(&self, transport: I) -> Result<(), TesseronError> {
        drive(self.bridge.leg(Leg::Agent), transport, self.sockets.timer()).await
    }

    /// The agent's leg. Drive it instead of calling [`Gateway::serve`] if the transport has several lanes; `http-service` serves it as an
    /// HTTP session. The driver must use the clock of the gateway's [`Sockets`]. Dropping the leg ends the agent's session, and closes the
    /// channels to all apps.
    #[must_use]
    pub fn agent_leg(&self) -> BridgeLeg {
        self.bridge.leg(Leg::Agent)
    }

    /// Closes the agent's session, and then those of the apps.
    pub fn close(&self, how: Close) {
        self.bridge.close(how);
    }

    /// The next event. The gateway has already handled the event; the caller may show it. Call this method from one task at a time.
    ///
    /// # Cancel safety
    /// Cancel safe: no event is lost.
    ///
    /// # Errors
    /// [`TesseronError::Random`] once the system has failed to provide random bytes; the gateway then closes.
    pub async fn next_event(&self) -> Result<BridgeEvent, TesseronError> {
        let event = self.bridge.next_event().await;
        if self.shared.unsafe_codes.load(Ordering::Relaxed) {
            self.close(Close::Now);
            return Err(TesseronError::Random(io::ErrorKind::Other.into()));
        }
        // A breadcrumb removes its file when it is dropped, so it is dropped after the lock is released.
        match &event {
            BridgeEvent::ClaimWanted { claim, code } => {
                let (gateway, claim, code) = (self.clone(), *claim, code.clone());
                self.sockets.spawn(Box::pin(async move { gateway.dial_for(claim, &code).await }));
            }
            BridgeEvent::AppReady { channel, app, code } => {
                let identity = &app.identity;
                if code.is_some() {
                    self.write_breadcrumb(*channel, identity.title.as_deref().unwrap_or(&identity.name));
                }
                let mut apps = self.shared.lock();
                if let Some(id) = apps.channels.get(channel).cloned() {
                    apps.app_ids.insert(id, identity.name.clone());
                }
            }
            BridgeEvent::AppClaimed { channel } => {
                let breadcrumb = self.shared.lock().breadcrumbs.remove(channel);
                drop(breadcrumb);
            }
            BridgeEvent::AppClosed { channel, .. } => {
                let mut apps = self.shared.lock();
                if let Some(id) = apps.channels.remove(channel) {
                    apps.forget_dial(&id);
                }
                let breadcrumb = apps.breadcrumbs.remove(channel);
                drop(apps);
                drop(breadcrumb);
            }
            BridgeEvent::AgentClosed(_) => {
                let breadcrumbs = core::mem::take(&mut self.shared.lock().breadcrumbs);
                drop(breadcrumbs);
            }
            _ => {}
        }
        Ok(event)
    }

    /// Writes the breadcrumb of the unclaimed session on `channel`.
    fn write_breadcrumb(&self, channel: ChannelId, app_name: &str) {
        let Some(pending) = self.bridge.pending().into_iter().find(|pending| pending.channel == channel) else { return };
        let written = Breadcrumb::write(&self.home, &pending, app_name);
        let mut apps = self.shared.lock();
        match written {
            Ok(breadcrumb) => drop(apps.breadcrumbs.insert(channel, breadcrumb)),
            Err(error) => apps.unannounced = Some(error),
        }
    }

    /// Reads the manifests, connects to the apps that make no codes of their own, each in a new task, and removes the manifests of dead
    /// processes. The first scan also removes old breadcrumbs.
    ///
    /// # Errors
    /// [`TesseronError::Folder`], as [`Home::read_instances`].
    pub fn rescan(&self) -> Result<Scan, TesseronError> {
        let mut scan = Scan::default();
        let mut advertised = Vec::new();
        let mut known = BTreeSet::new();
        if !self.shared.has_swept.swap(true, Ordering::Relaxed)
            && let Err(error) = breadcrumb::sweep(&self.home, self.sockets.epoch_ms())
        {
            // Stored before the manifests are read, so that the next scan reports the error if this scan fails.
            self.shared.lock().unannounced.get_or_insert(error);
        }
        for read in self.home.read_instances()? {
            known.extend(read.as_ref().ok().map(|instance| instance.id.clone()));
            match read {
                Ok(instance) if instance.claim.is_some() => advertised.extend(self.advertise(&instance)),
                Ok(instance) if !instance.hello_handled_by_host => self.dial_once(instance),
                // The app requires a bind, but its manifest has no code for it.
                Ok(_) => {}
                Err(refused) => {
                    // If the manifest cannot be removed now, the next scan finds it again.
                    let _ = refused.remove_if_dead();
                    scan.refused.push(refused);
                }
            }
        }
        self.bridge.advertise(advertised);
        let mut apps = self.shared.lock();
        apps.app_ids.retain(|id, _| known.contains(id));
        scan.unannounced = apps.unannounced.take();
        scan.unreachable = core::mem::take(&mut apps.unreachable);
        drop(apps);
        Ok(scan)
    }

    fn advertise(&self, instance: &Instance) -> Option<Advertised> {
        let claim = instance.claim.as_ref().filter(|_| instance.is_claimable(self.sockets.epoch_ms()))?;
        Some(Advertised {
            code: claim.code.clone(),
            app_id: self.shared.lock().app_ids.get(&instance.id).cloned(),
            app_name: instance.app_name.clone(),
            instance_id: instance.id.clone(),
            minted_at: claim.minted_at,
            // `u64::MAX` means that the code does not expire.
            expires_at: Some(claim.expires_at).filter(|at| *at != u64::MAX),
        })
    }

    /// Connects to an app, unless it is connected or being connected.
    fn dial_once(&self, instance: Instance) {
        if !self.shared.lock().dialled.insert(instance.id.clone()) {
            return;
        }
        let gateway = self.clone();
        self.sockets.spawn(Box::pin(async move {
            match dial(&gateway.sockets, &instance, None).await {
                Ok(transport) => {
                    gateway.run_channel(&instance, transport, || gateway.bridge.open());
                }
                Err(error) => gateway.shared.record_unreachable(&instance, error),
            }
        }));
    }

    /// Looks for the app whose code the agent has sent, and connects to it.
    async fn dial_for(&self, claim: ClaimId, code: &ClaimCode) {
        let found = self.home.read_instances().ok().and_then(|all| {
            let mut all = all.into_iter().flatten();
            all.find(|instance| instance.claim.as_ref().is_some_and(|claim| claim.code.matches(code)))
        });
        let Some(instance) = found else {
            let minter = Minter::of(&self.home, code, self.sockets.epoch_ms());
            let why = minter.map_or_else(|| String::from("no app has this code"), |minter| minter.why_not_here());
            return self.bridge.refuse_claim(claim, &why);
        };
        // The app would refuse a code that is spent. If a claim has expired, its app no longer refreshes it, and has probably ended.
        let claimable = instance.is_claimable(self.sockets.epoch_ms());
        let Some(minted) = instance.claim.clone().filter(|_| claimable) else {
            return self.bridge.refuse_claim(claim, "it was used before, or its app has ended");
        };
        match dial(&self.sockets, &instance, Some(code)).await {
            Ok(transport) => {
                let bound = BoundDial { code: minted.code, session_id: minted.session_id, resume_token: minted.resume_token };
                self.run_channel(&instance, transport, || self.bridge.open_claimed(claim, bound));
            }
            Err(error) => {
                let is_refused = matches!(error, TesseronError::Refused { .. } | TesseronError::Unbound { .. });
                let what = if is_refused { "refuses this code" } else { "could not be reached" };
                self.bridge.refuse_claim(claim, &format!("{} {what}: {error}", instance.app_name));
                self.shared.record_unreachable(&instance, error);
            }
        }
    }

    /// Opens a channel and drives it in a task. If the bridge refuses the channel, the transport is dropped.
    fn run_channel(
        &self,
        instance: &Instance,
        transport: TesseronTransport,
        open: impl FnOnce() -> Result<ChannelId, OpenRefused>,
    ) {
        // The lock is held until the channel is stored, so that the end of the channel cannot be handled earlier.
        let mut apps = self.shared.lock();
        let Ok(channel) = open() else {
            return apps.forget_dial(&instance.id);
        };
        apps.dialled.insert(instance.id.clone());
        apps.channels.insert(channel, instance.id.clone());
        drop(apps);
        let leg = self.bridge.leg(Leg::App(channel));
        let timer = self.sockets.timer();
        self.sockets.spawn(Box::pin(async move {
            // The bridge has handled the end; an error of one app does not end the gateway.
            let _ = drive(leg, transport, timer).await;
        }));
    }
}

impl Apps {
    /// Lets the next scan connect to an instance, unless the instance still has a channel, for example one that was opened for a claim.
    fn forget_dial(&mut self, id: &str) {
        if !self.channels.values().any(|connected| connected == id) {
            self.dialled.remove(id);
        }
    }
}

impl Shared {
    /// Records that connecting to an app has failed, so that the next scan reports the error and tries again.
    fn record_unreachable(&self, instance: &Instance, error: TesseronError) {
        let mut apps = self.lock();
        apps.forget_dial(&instance.id);
        if apps.unreachable.len() < MAX_UNREACHABLE {
            apps.unreachable.push((instance.app_name.clone(), error));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Apps> {
        self.apps.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Sockets> fmt::Debug for Gateway<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Gateway").field(&self.bridge).finish()
    }
}

async fn drive<I: FrameIo<Error = io::Error>>(leg: BridgeLeg, transport: I, timer: impl Timer) -> Result<(), TesseronError> {
    match Driver::new(leg, transport, timer).next_event().await.map_err(TransportError::broken)? {
        Some(never) => match never {},
        None => Ok(()),
    }
}
