// A stand-in for torch_musa's header: the current stream, as the simulated device knows it.
#pragma once
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <musa_runtime.h>
namespace c10::musa {
// torch before 2.12 gives no handle of a stream; the kernels of this toolkit run on none.
template <class Stream>
auto handle_of(const Stream& stream, int) -> decltype(stream.native_handle()) { return stream.native_handle(); }
template <class Stream>
void* handle_of(const Stream&, long) { return nullptr; }
class MUSAStream {
 public:
  explicit MUSAStream(c10::Stream stream) : stream_(stream) {}
  operator musaStream_t() const { return reinterpret_cast<musaStream_t>(handle_of(stream_, 0)); }
  musaStream_t stream() const { return *this; }
  c10::StreamId id() const { return stream_.id(); }

 private:
  c10::Stream stream_;
};
inline MUSAStream getCurrentMUSAStream(c10::DeviceIndex index = -1) {
  const c10::impl::VirtualGuardImpl impl(c10::DeviceType::PrivateUse1);
  return MUSAStream(impl.getStream(index < 0 ? impl.getDevice() : c10::Device(c10::DeviceType::PrivateUse1, index)));
}
}  // namespace c10::musa
namespace at::musa {
using c10::musa::getCurrentMUSAStream;
}
